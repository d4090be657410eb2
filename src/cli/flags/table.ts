/** All flags of `kube-proxy`, sorted by name as help and snapshots show them. Reference start.md §2.2. */
import type { AnyFlag } from "../../config/flag.ts";
import { KERNEL_FLAGS } from "./kernel.ts";
import { LOGGING_FLAGS } from "./logging.ts";
import { MODE_FLAGS } from "./modes.ts";
import { NETWORK_FLAGS } from "./network.ts";
import { PROCESS_FLAGS } from "./process.ts";

export const FLAGS: readonly AnyFlag[] = [
  ...KERNEL_FLAGS,
  ...LOGGING_FLAGS,
  ...MODE_FLAGS,
  ...NETWORK_FLAGS,
  ...PROCESS_FLAGS,
].sort((a, b) => (a.name < b.name ? -1 : 1));
