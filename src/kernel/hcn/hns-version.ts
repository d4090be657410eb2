/** What a version of HNS can do. Reference windows.md §1.5. */

/** Of the HNS service, not of Windows. */
export interface HnsVersion {
  readonly major: number;
  readonly minor: number;
}

/** From the first version on, to the end of its major, or without end. */
interface Range {
  readonly from: readonly [major: number, minor: number];
  readonly hasEnd: boolean;
}

const since = (major: number, minor: number): Range => ({ from: [major, minor], hasEnd: false });
const within = (major: number, minor: number): Range => ({ from: [major, minor], hasEnd: true });

const RANGES = {
  apiV2: [since(9, 2)],
  remoteSubnet: [since(9, 2)],
  dsr: [within(9, 3), since(10, 2)],
  ipv6DualStack: [since(11, 10)],
  sessionAffinity: [since(12, 0)],
  /** Version 15.4 says that it has modified, and has not (kubernetes #131466). */
  modifyLoadBalancer: [within(15, 5), since(16, 0)],
} as const satisfies Readonly<Record<string, readonly Range[]>>;

export type HnsFeatures = Readonly<Record<keyof typeof RANGES, boolean>>;

export function hnsFeatures(version: HnsVersion): HnsFeatures {
  const features = Object.entries(RANGES).map(([name, ranges]) => [name, ranges.some((one) => isIn(version, one))]);
  return Object.fromEntries(features) as HnsFeatures; // of each range
}

function isIn({ major, minor }: HnsVersion, { from: [firstMajor, firstMinor], hasEnd }: Range): boolean {
  if (major === firstMajor) return minor >= firstMinor;
  return major > firstMajor && !hasEnd;
}

/** `15.5`. Pure. */
export function hnsVersionText({ major, minor }: HnsVersion): string {
  return `${major}.${minor}`;
}
