/**
 * The Kubernetes releases whose kube-proxy this program can be, and all that differs between them in rules, messages and
 * defaults. Other code asks for a fact by its name and never compares versions. Pure. Reference releases.md.
 */

/** One release of upstream's kube-proxy. */
export interface Release {
  /** As the setting `compatibility` has it: `v1.37`. */
  readonly name: string;
  /** The version that is reported: `v1.37.0`. */
  readonly version: string;
  /** The release before: `1.36`. */
  readonly previousMinor: string;
  /** Not out yet: what is known of it may change. */
  readonly isPreview: boolean;
  /** `nodePortAddresses` takes `localhost` and `all`, and words beside prefixes. */
  readonly mixesNodePortWords: boolean;
  /** Whether a mode that is not set is warned of: the default of Linux is to change in v1.40 (KEP-5343). */
  readonly warnsOfDefaultMode: boolean;
  /** nftables mode: one endpoint without affinity is a plain `dnat to`, and no draw from a map of one. */
  readonly plainSingleDnat: boolean;
  /** nftables mode: where comments on elements for what has no endpoints end, bytes. */
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
  // What netlink takes: upstream's own limit is 128, and one longer name fails every sync of its table.
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

/** In order, the oldest first. */
export const RELEASES: readonly Release[] = [V1_36, V1_37, V1_38];

/** The release that is copied where nothing is set. */
export const CURRENT_RELEASE = V1_37;

/** The release that a configuration asks for; a name that the checks refuse stands for the current one. */
export function releaseOf({ compatibility }: { readonly compatibility: string }): Release {
  return RELEASES.find(({ name }) => name === compatibility) ?? CURRENT_RELEASE;
}

/** `v1.36, v1.37 or v1.38 (preview)`. */
export function releaseNames(): string {
  const names = RELEASES.map(({ name, isPreview }) => (isPreview ? `${name} (preview)` : name));
  return `${names.slice(0, -1).join(", ")} or ${names.at(-1)}`;
}
