/**
 * `node:http` without the runtime's WebSocket client: an `import` reads every export of the module, and reading some of them
 * loads that client (30 ms and 5 MB, docs/notes/performance-diary.md).
 */
export const { Agent, createServer, request } = process.getBuiltinModule("node:http");
