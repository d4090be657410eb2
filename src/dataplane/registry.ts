/** The proxy modes, one line each, in the order of their sections in `/configz` and of their errors. */

import type { SectionNameOf } from "./dataplane.ts";
import { ebpf } from "./ebpf/index.ts";
import { iptables } from "./iptables/index.ts";
import { ipvs } from "./ipvs/index.ts";
import { kernelspace } from "./kernelspace/index.ts";
import { nftables } from "./nftables/index.ts";
import { userspace } from "./userspace/index.ts";

/** Adding a mode is adding its folder and its name to this list. */
export const MODES = [iptables, ipvs, nftables, userspace, kernelspace, ebpf] as const;

export type RegisteredMode = (typeof MODES)[number];
export type ProxyMode = RegisteredMode["name"];

/** The section of a mode in the configuration. */
type SectionName = SectionNameOf<RegisteredMode>;

/** The mode that runs where none is named, and whose section has the periods of modes without their own. */
export const DEFAULT_MODE = iptables;

/** Narrows a text to the name of a mode. */
export function isProxyMode(text: string): text is ProxyMode {
  return MODES.some(({ name }) => name === text);
}

/** The descriptor of a mode; undefined for texts that name none. */
export function findMode(name: string): RegisteredMode | undefined {
  return MODES.find((mode) => mode.name === name);
}

/** The descriptor of a mode. */
export function modeNamed(name: ProxyMode): RegisteredMode {
  return findMode(name) ?? DEFAULT_MODE;
}

/** The section of a mode in the configuration. */
export function sectionNameOf(mode: RegisteredMode): SectionName {
  return (mode.sectionName ?? mode.name) as SectionName; // the type of each descriptor says which
}

/** The mode that runs on a platform where none is named. */
export function defaultModeOn(platform: NodeJS.Platform): RegisteredMode {
  return platform === "win32" ? kernelspace : DEFAULT_MODE;
}

/** Whether a mode can run on a platform. */
export function runsOn({ platforms = ["linux"] }: RegisteredMode, platform: NodeJS.Platform): boolean {
  return platforms.includes(platform);
}

/** The modes that can run on a platform. */
export function modesOn(platform: NodeJS.Platform): readonly RegisteredMode[] {
  return MODES.filter((mode) => runsOn(mode, platform));
}

/** Every mode of the platform, ordered so that no leftover is asked to go while one that refers to it stays. */
export function modesInCleanUpOrder(platform: NodeJS.Platform = process.platform): readonly RegisteredMode[] {
  const goesBefore = (one: RegisteredMode, other: RegisteredMode) => one.cleanUpBefore?.includes(other.name) ?? false;
  const ordered: RegisteredMode[] = [];
  for (const mode of modesOn(platform)) {
    const next = ordered.findIndex((other) => goesBefore(mode, other));
    ordered.splice(next === -1 ? ordered.length : next, 0, mode);
  }
  return ordered;
}

/** The modes whose leftovers are removed at the start of another, each list in order. */
interface ReplacedModes {
  readonly beforeFirstSync: readonly RegisteredMode[];
  /** Their rules serve until those of the new mode do. */
  readonly afterFirstSync: readonly RegisteredMode[];
}

/** The modes whose leftovers are removed when this one starts. */
export function modesReplacedBy({ name, replacesInPlace = [], hasOwnNames }: RegisteredMode): ReplacedModes {
  const others = modesInCleanUpOrder().filter((other) => other.name !== name && !replacesInPlace.includes(other.name));
  const canStay = (other: RegisteredMode): boolean => hasOwnNames === true || other.hasOwnNames === true;
  return { beforeFirstSync: others.filter((other) => !canStay(other)), afterFirstSync: others.filter(canStay) };
}
