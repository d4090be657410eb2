/** The features of a version of HNS. Reference windows.md §1.5. */

/** The version of the HNS service, not of Windows. */
export interface HnsVersion {
  readonly major: number;
  readonly minor: number;
}

type Test = (version: HnsVersion) => boolean;

/** From this version on. */
const since =
  (first: number, least: number): Test =>
  ({ major, minor }) =>
    major > first || (major === first && minor >= least);
/** From this version on, within its major version. */
const within =
  (only: number, least: number): Test =>
  ({ major, minor }) =>
    major === only && minor >= least;

const FEATURES = {
  apiV2: [since(9, 2)],
  remoteSubnet: [since(9, 2)],
  dsr: [within(9, 3), since(10, 2)],
  ipv6DualStack: [since(11, 10)],
  sessionAffinity: [since(12, 0)],
  /** Version 15.4 reports success and modifies nothing (kubernetes #131466). */
  modifyLoadBalancer: [within(15, 5), since(16, 0)],
} as const satisfies Readonly<Record<string, readonly Test[]>>;

export type HnsFeatures = Readonly<Record<keyof typeof FEATURES, boolean>>;

export function hnsFeatures(version: HnsVersion): HnsFeatures {
  const features = Object.entries(FEATURES).map(([name, tests]) => [name, tests.some((test) => test(version))]);
  return Object.fromEntries(features) as HnsFeatures; // of each
}

/** `15.5`. */
export function hnsVersionText({ major, minor }: HnsVersion): string {
  return `${major}.${minor}`;
}
