/** What the mode does in a lesser way than it was asked to, for `/healthz`, `status` and the page. Everything is served all the same. Pure. */

import { messageOf } from "../../logging/message-of.ts";
import type { SyncFailure } from "../../sync/backend.ts";

export interface SocketState {
  readonly isAttached: boolean;
  readonly cgroup: string | undefined;
  /** The cgroup that the programs were attached to, or should be, is gone. */
  readonly isCgroupGone: boolean;
  /** Why nothing is decided at the socket, as far as it is known. */
  readonly complaint: string | undefined;
  /** Why connected UDP is not led everywhere; empty where it is. */
  readonly udpComplaint: string;
  /** Reasons why the maps did not take service ports, one for each. */
  readonly refusals: readonly string[];
  /** Why nothing outlives this process where it should. */
  readonly pinProblem: unknown;
}

/** In whole sentences without a full stop: what, and why. */
export function lesserWays(state: SocketState): readonly SyncFailure[] {
  const { isAttached, cgroup, isCgroupGone, complaint, udpComplaint, refusals, pinProblem } = state;
  const way = (subject: string, reason: string | undefined) => (reason === undefined ? [] : [{ subject, reason }]);
  const gone = isCgroupGone ? `the cgroup ${cgroup} is not there` : undefined;
  if (!isAttached) return way("nothing is decided at the socket", gone ?? complaint);
  return [
    ...way("connected UDP takes the rules", udpComplaint === "" ? undefined : udpComplaint),
    ...way(`${refusals.length} service ports take the rules`, refusals[0]),
    ...way(
      "nothing is decided while this process is away",
      pinProblem === undefined ? undefined : messageOf(pinProblem),
    ),
  ];
}
