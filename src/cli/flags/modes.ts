/** The flags of the proxy modes: those that each declares, and for each with periods of its own, two for these. */
import type { DraftConfig } from "../../config/config.ts";
import { type AnyFlag, type Flag, flag } from "../../config/flag.ts";
import { durationType } from "../../config/flag-types.ts";
import { DEFAULT_MODE, findMode, MODES, type RegisteredMode } from "../../dataplane/registry.ts";
import { durationToMs } from "../../text/duration.ts";

const SECOND = 1_000_000_000n;

type Periods = Partial<Pick<DraftConfig, "syncPeriodMs" | "minSyncPeriodMs">>;

/** The mode whose flags set the periods of the mode that runs. */
const ownerOf = (mode: string): RegisteredMode => {
  const running = findMode(mode);
  return running?.config.periodFlags === undefined ? DEFAULT_MODE : running;
};

interface PeriodFlags {
  readonly mode: RegisteredMode;
  readonly syncPeriod: Flag<bigint>;
  readonly minSyncPeriod: Flag<bigint>;
}

function periodFlags(mode: RegisteredMode): readonly PeriodFlags[] {
  const { name, config } = mode;
  if (config.periodFlags === undefined) return [];
  const period = (what: string, initial: bigint, help: string, change: (ms: number) => Periods) =>
    flag({
      name: `${name}-${what}`,
      type: durationType,
      initial,
      help,
      overlay: (draft, time) => (ownerOf(draft.mode) === mode ? { ...draft, ...change(durationToMs(time)) } : draft),
    });
  const { syncPeriod, minSyncPeriod } = config.periodFlags;
  return [
    {
      mode,
      syncPeriod: period("sync-period", 30n * SECOND, syncPeriod, (syncPeriodMs) => ({ syncPeriodMs })),
      minSyncPeriod: period("min-sync-period", SECOND, minSyncPeriod, (minSyncPeriodMs) => ({ minSyncPeriodMs })),
    },
  ];
}

const PERIOD_FLAGS = MODES.flatMap(periodFlags);

/** The flag that sets `minSyncPeriod` for the mode. */
export function minSyncPeriodFlag(mode: string): Flag<bigint> | undefined {
  return PERIOD_FLAGS.find(({ mode: owner }) => owner === ownerOf(mode))?.minSyncPeriod;
}

export const MODE_FLAGS: readonly AnyFlag[] = [
  ...MODES.flatMap(({ config }) => config.flags),
  ...PERIOD_FLAGS.flatMap(({ syncPeriod, minSyncPeriod }) => [syncPeriod, minSyncPeriod]),
];
