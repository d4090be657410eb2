/**
 * Ends test processes that hang: node:test sends them SIGTERM when their time is over, which a process in an endless
 * loop never notices.
 */
import { readdirSync, readFileSync } from "node:fs";

const LOOK_MS = 5_000;
/** For a process that handles the signal and cleans up. */
const GRACE_MS = 30_000;
/** The unit of /proc/PID/stat. */
const TICK_MS = 10;

const commandLine = (pid) => readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");

/** Children of this process: `{ pid, ageMs }`. */
function children() {
  const uptimeMs = Number(readFileSync("/proc/uptime", "utf8").split(" ")[0]) * 1000;
  return readdirSync(`/proc/${process.pid}/task`)
    .flatMap((thread) => readFileSync(`/proc/${process.pid}/task/${thread}/children`, "utf8").trim().split(" "))
    .filter((pid) => pid !== "")
    .map((pid) => {
      const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
      // The program's name, in brackets, may contain spaces; the start time is the 22nd field.
      const started = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]);
      return { pid: Number(pid), ageMs: uptimeMs - started * TICK_MS };
    });
}

/**
 * Watches until the returned function is called.
 *
 * @param limitMs how long a test process may take.
 * @param isOurs tells from a process's command line whether it is one of ours; other tests may run beside them.
 */
export function endHungTests(limitMs, isOurs) {
  const timer = setInterval(() => {
    try {
      for (const { pid, ageMs } of children())
        if (ageMs > limitMs + GRACE_MS && isOurs(commandLine(pid))) process.kill(pid, "SIGKILL");
    } catch {
      // A process ended while it was being read.
    }
  }, LOOK_MS);
  timer.unref();
  return () => clearInterval(timer);
}
