# shellcheck shell=sh
# Installs packages with the system's package manager. To be sourced.

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Retries, because a mirror may be slow or busy. A mirror that stays down is an error.
try() {
    for pause in 5 20 fail; do
        if "$@"; then return; fi
        if [ "$pause" = fail ]; then return 1; fi
        echo "failed, trying again: $*" >&2
        sleep "$pause"
    done
}

# jars POM FOLDER [MAVEN ARGUMENTS…]: downloads the libraries that a POM names. The folder keeps a copy of the POM, by which it is known to be whole.
jars() {
    pom=$1 folder=$2
    shift 2
    if ! cmp -s "$pom" "$folder/pom.xml"; then
        rm -rf "$folder"
        mvn -q -B -f "$pom" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DincludeScope=runtime \
            "-DoutputDirectory=$folder" "$@" || return 1
        cp "$pom" "$folder/pom.xml"
    fi
}

# install WHAT MANAGER=PACKAGES…, with the names of the packages in each manager.
install() {
    what=$1
    shift
    for names; do
        manager=${names%%=*} packages=${names#*=}
        command -v "$manager" >/dev/null 2>&1 || continue
        echo "$what is missing; installing it with $manager" >&2
        # shellcheck disable=SC2086 # a list of words
        case $manager in
            apt-get)
                try as_root apt-get update -qq
                # RUNLEVEL=1 keeps the packages from starting their services.
                try as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $packages
                ;;
            dnf) try as_root dnf install -y $packages ;;
            apk) try as_root apk add $packages ;;
            pacman) try as_root pacman -S --noconfirm $packages ;;
            brew) try brew install $packages ;;
        esac
        return
    done
    echo "no known package manager; install $what, then run this again" >&2
    return 1
}
