/**
 * `node:util` without its lazily loaded parts: an `import` reads every export of the module, which loads them all and takes
 * 15 ms of every start.
 */
export const { isDeepStrictEqual, parseArgs, promisify, styleText } = process.getBuiltinModule("node:util");
