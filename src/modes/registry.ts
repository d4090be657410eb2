/** The proxy modes, one line each, in the order of their sections in `/configz` and of their errors. */

import type { SectionNameOf } from "../contract/dataplane.ts";
import { ebpf } from "./ebpf/index.ts";
import { iptables } from "./iptables/index.ts";
import { ipvs } from "./ipvs/index.ts";
import { kernelspace } from "./kernelspace/index.ts";
import { nftables } from "./nftables/index.ts";
import { userspace } from "./userspace/index.ts";

/** To add a mode, add its folder and its name to this list. */
export const MODES = [iptables, ipvs, nftables, userspace, kernelspace, ebpf] as const;

export type RegisteredMode = (typeof MODES)[number];
export type ProxyMode = RegisteredMode["name"];

type SectionName = SectionNameOf<RegisteredMode>;

/** The mode that runs if none is named, and whose section has the periods of modes without their own. */
export const DEFAULT_MODE = iptables;

export function isProxyMode(text: string): text is ProxyMode {
  return MODES.some(({ name }) => name === text);
}

/** The descriptor of a mode; undefined if the text names none. */
export function findMode(name: string): RegisteredMode | undefined {
  return MODES.find((mode) => mode.name === name);
}

/** The descriptor of a mode. */
export function modeNamed(name: ProxyMode): RegisteredMode {
  return findMode(name) ?? DEFAULT_MODE;
}

/** The name of a mode's configuration section. */
export function sectionNameOf(mode: RegisteredMode): SectionName {
  return (mode.sectionName ?? mode.name) as SectionName; // the type of each descriptor says which
}

/** The mode that runs on a platform if none is named. */
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

/** Every mode of the platform, ordered so that leftovers are removed before those that they refer to. */
export function modesInCleanUpOrder(platform: NodeJS.Platform = process.platform): readonly RegisteredMode[] {
  const goesBefore = (one: RegisteredMode, other: RegisteredMode) => one.cleanUpBefore?.includes(other.name) ?? false;
  const ordered: RegisteredMode[] = [];
  for (const mode of modesOn(platform)) {
    const next = ordered.findIndex((other) => goesBefore(mode, other));
    ordered.splice(next === -1 ? ordered.length : next, 0, mode);
  }
  return ordered;
}

/** The modes whose leftovers are removed when another starts, each list in order. */
interface ReplacedModes {
  readonly beforeFirstSync: readonly RegisteredMode[];
  /** Modes whose rules serve until the new mode's rules do. */
  readonly afterFirstSync: readonly RegisteredMode[];
}

/** The modes whose leftovers are removed when this one starts. */
export function modesReplacedBy({ name, replacesInPlace = [], hasOwnNames }: RegisteredMode): ReplacedModes {
  const others = modesInCleanUpOrder().filter((other) => other.name !== name && !replacesInPlace.includes(other.name));
  const canStay = (other: RegisteredMode): boolean => hasOwnNames === true || other.hasOwnNames === true;
  return { beforeFirstSync: others.filter((other) => !canStay(other)), afterFirstSync: others.filter(canStay) };
}
