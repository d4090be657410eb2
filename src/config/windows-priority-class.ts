/**
 * The priority classes of Windows processes, by the names of winbase.h, which kubelet's flag has too. Each is a level of
 * `os.setPriority`, which libuv makes the class of that name, and tells apart again when it is asked.
 */
import { constants } from "node:os";

const { priority } = constants;

export const PRIORITY_CLASSES: ReadonlyMap<string, number> = new Map([
  ["IDLE_PRIORITY_CLASS", priority.PRIORITY_LOW],
  ["BELOW_NORMAL_PRIORITY_CLASS", priority.PRIORITY_BELOW_NORMAL],
  ["NORMAL_PRIORITY_CLASS", priority.PRIORITY_NORMAL],
  ["ABOVE_NORMAL_PRIORITY_CLASS", priority.PRIORITY_ABOVE_NORMAL],
  ["HIGH_PRIORITY_CLASS", priority.PRIORITY_HIGH],
  ["REALTIME_PRIORITY_CLASS", priority.PRIORITY_HIGHEST],
]);
