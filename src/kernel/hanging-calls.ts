/**
 * System calls that may never return, such as a read from a dead file server. At exit, Node.js waits for the threads that
 * make such calls, but SIGTERM must end the process. So during such a call the process exits without waiting.
 */
import { createRequire } from "node:module";

let underWay = 0;
let isPrepared = false;

/** Announces a call that may hang. */
export function mayHang(): {
  /** To be called when the call has returned. */
  end(): void;
} {
  if (!isPrepared) process.on("exit", endWithoutWaiting);
  isPrepared = true;
  underWay++;
  let isOver = false;
  return {
    end() {
      if (!isOver) underWay--;
      isOver = true;
    },
  };
}

/** The last exit listener that matters: the others were registered earlier, or have nothing left to say. */
function endWithoutWaiting(status: number): void {
  if (underWay === 0) return;
  try {
    const koffi: typeof import("koffi") = createRequire(import.meta.url)("koffi");
    koffi.load(null).func("void _exit(int status)")(status);
  } catch {
    process.kill(process.pid, "SIGKILL");
  }
}
