CREATE TABLE orders (id bigint PRIMARY KEY, total bigint NOT NULL);
