/**
 * `node:util`, without what is loaded when all of it is read: an `import` reads every export of the module, which takes 15 ms of
 * every start.
 */
export const { isDeepStrictEqual, parseArgs, promisify, styleText } = process.getBuiltinModule("node:util");
