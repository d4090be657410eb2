/** For signals.test.ts: keeps querying the kernel while the parent floods this process with signals. */
import { localAddresses } from "../../route/addresses.ts";

const DURATION_MS = 1_500;

process.on("SIGUSR2", () => {});
process.stdout.write("ready\n");
const end = performance.now() + DURATION_MS;
while (performance.now() < end) {
  await localAddresses("IPv4");
  await new Promise((resolve) => setImmediate(resolve));
}
process.stdout.write("done\n");
process.exit(0);
