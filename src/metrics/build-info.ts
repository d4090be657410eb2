/** The facts of `kubernetes_build_info` and `--version=raw`. */
export interface BuildInfo {
  readonly major: string;
  readonly minor: string;
  /** `v1.37.0`. */
  readonly gitVersion: string;
  readonly gitCommit: string;
  readonly gitTreeState: string;
  readonly buildDate: string;
  /** What runs it, in the places of Go's facts. */
  readonly goVersion: string;
  readonly compiler: string;
  readonly platform: string;
}
