/**
 * The end of a HostProcess container, or of Windows: console programs get CTRL_SHUTDOWN_EVENT, which Node.js does not pass on. Windows
 * ends the process when the handler returns, and koffi runs a handler on the JavaScript thread that registered it, so a separate thread
 * waits in the handler while the program stops. Tested under Wine, not on Windows. Reference windows-practice.md §12.
 */
import { createRequire } from "node:module";
import { Worker } from "node:worker_threads";

/** Kubernetes kills a container after this long, unless its pod sets another period. */
const LONGEST_STOP_MS = 30_000;

/** CommonJS, as a worker made from a string is. Node.js handles the other events. */
const THREAD = `
const { parentPort, workerData: { koffiPath, library, limitMs } } = require("node:worker_threads");
const koffi = require(koffiPath);
const CTRL_SHUTDOWN_EVENT = 6;
koffi.proto("int32_t __stdcall HandlerRoutine(uint32_t event)");
const setHandler = koffi.load(library).func("int32_t __stdcall SetConsoleCtrlHandler(HandlerRoutine *handler, int32_t add)");
const handler = koffi.register((event) => {
  if (event !== CTRL_SHUTDOWN_EVENT) return 0;
  parentPort.postMessage(event);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, limitMs);
  return 1;
}, "HandlerRoutine *");
if (setHandler(handler, 1) === 0) throw new Error("SetConsoleCtrlHandler refuses");
// Keeps the thread.
parentPort.on("message", () => {});
`;

/**
 * Listens until the process ends, without keeping it alive.
 * @param onShutdown the process has half a minute to exit. @param onError the event will not come, for this reason.
 */
export function onShutdownEvent(onShutdown: () => void, onError: (error: unknown) => void): void {
  const workerData = {
    koffiPath: createRequire(import.meta.url).resolve("koffi"),
    library: `${process.env.SystemRoot ?? "C:\\Windows"}\\System32\\kernel32.dll`,
    limitMs: LONGEST_STOP_MS,
  };
  const thread = new Worker(THREAD, { eval: true, workerData, name: "shutdown event" });
  thread.on("message", onShutdown).on("error", onError).unref();
}
