/**
 * What must not be left on the machine, however the bench ends: at its end, on a signal, or when its output is no longer read
 * any more (`| head`).
 */
const pending = new Set<() => void>();

process.on("exit", () => {
  for (const work of pending) work();
});

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => process.exit(1));

/** Does the work when the process ends, unless the function that this returns has done it before. */
export function atExit(work: () => void): () => void {
  pending.add(work);
  return () => {
    if (pending.delete(work)) work();
  };
}
