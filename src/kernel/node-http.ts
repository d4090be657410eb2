/**
 * `node:http`, without the WebSocket client of the runtime: an `import` reads every export of the module, some of which load
 * that client when they are read (30 ms and 5 MB, docs/performance.md).
 */
export const { Agent, createServer, request } = process.getBuiltinModule("node:http");
