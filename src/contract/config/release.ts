/**
 * The Kubernetes releases whose kube-proxy this program can copy, and all differences between them in rules, messages and
 * defaults. Other code asks for a fact by name and never compares versions. Reference releases.md.
 */

/** One release of upstream's kube-proxy. */
export interface Release {
  /** The value of the setting `compatibility`: `v1.37`. */
  readonly name: string;
  /** The version to report: `v1.37.0`. */
  readonly version: string;
  /** The release before: `1.36`. */
  readonly previousMinor: string;
  /** Not released yet: it may still change. */
  readonly isPreview: boolean;
  /** `nodePortAddresses` takes `localhost` and `all`, and mixes words with prefixes. */
  readonly mixesNodePortWords: boolean;
  /** Warns if no mode is set: the default on Linux will change in v1.40 (KEP-5343). */
  readonly warnsOfDefaultMode: boolean;
  /** nftables mode: a single endpoint without affinity gets a plain `dnat to` instead of a choice from a map of one. */
  readonly plainSingleDnat: boolean;
  /** nftables mode: the length limit of comments on elements for frontends without endpoints, in bytes. */
  readonly elementCommentBytes: number;
  /** The default of the gate `KubeProxyNFTablesLocalhostNodePorts`. */
  readonly localhostNodePorts: boolean;
}

const V1_36: Release = {
  name: "v1.36",
  version: "v1.36.2",
  previousMinor: "1.35",
  isPreview: false,
  mixesNodePortWords: false,
  warnsOfDefaultMode: false,
  plainSingleDnat: false,
  // The limit of netlink. Upstream's own is 128, with which one longer name fails every sync of its table.
  elementCommentBytes: 254,
  localhostNodePorts: false,
};

const V1_37: Release = {
  ...V1_36,
  name: "v1.37",
  version: "v1.37.0",
  previousMinor: "1.36",
  mixesNodePortWords: true,
  warnsOfDefaultMode: true,
  plainSingleDnat: true,
  elementCommentBytes: 128,
};

const V1_38: Release = {
  ...V1_37,
  name: "v1.38",
  version: "v1.38.0-alpha.2",
  previousMinor: "1.37",
  isPreview: true,
  localhostNodePorts: true,
};

/** Oldest first. */
export const RELEASES: readonly Release[] = [V1_36, V1_37, V1_38];

/** The release to copy if none is set. */
export const CURRENT_RELEASE = V1_37;

/** The release that a configuration asks for; the current one if the checks reject the name. */
export function releaseOf({ compatibility }: { readonly compatibility: string }): Release {
  return RELEASES.find(({ name }) => name === compatibility) ?? CURRENT_RELEASE;
}

/** `v1.36, v1.37 or v1.38 (preview)`. */
export function releaseNames(): string {
  const names = RELEASES.map(({ name, isPreview }) => (isPreview ? `${name} (preview)` : name));
  return `${names.slice(0, -1).join(", ")} or ${names.at(-1)}`;
}
