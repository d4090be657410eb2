/**
 * Calls to the system that may never return, such as a read from a file server that is gone. Node waits for the threads
 * they are made on when it ends; a process that is told to end must not. While such a call is under way, the process
 * ends without waiting.
 */
import { createRequire } from "node:module";

/** A call under way. */
interface MayHang {
  /** The call has returned. */
  end(): void;
}

let underWay = 0;
let isPrepared = false;

/** Announces a call. */
export function mayHang(): MayHang {
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

/** The last to be called when the process ends: all other listeners have been registered before, or say nothing more. */
function endWithoutWaiting(status: number): void {
  if (underWay === 0) return;
  try {
    const koffi: typeof import("koffi") = createRequire(import.meta.url)("koffi");
    koffi.load(null).func("void _exit(int status)")(status);
  } catch {
    process.kill(process.pid, "SIGKILL");
  }
}
