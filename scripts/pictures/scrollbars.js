// The package is CommonJS and names its default export "default", which a bundler gives to strict modules one level too deep.
import * as module from './node_modules/react-custom-scrollbars-2/lib/index.js';
export default module.Scrollbars;
