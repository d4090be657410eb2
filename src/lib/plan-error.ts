/** What keeps a plan or a model from being made, or printed. */
export type PlanErrorCode =
  /** An argument that is not what its type says; the message names it. */
  | "input-invalid"
  /** The KubeProxyConfiguration is no YAML or JSON, of another kind, or has a value of a wrong type. */
  | "config-decode"
  /** The configuration can be read, and has a value that is not allowed; a mode that does not exist, or a blank name of the node. */
  | "config-invalid"
  /** There is nothing of what is to be explained. */
  | "target-unknown"
  /** The mode has no such form, or not with these options. */
  | "form-unavailable"
  /** No Service of this name is in the cluster, or it is headless or another proxy's. */
  | "service-unknown";

/** A plan could not be made, or not printed in the form asked for; `message` says what to change. */
export class PlanError extends Error {
  override readonly name = "PlanError";
  readonly code: PlanErrorCode;
  constructor(code: PlanErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
