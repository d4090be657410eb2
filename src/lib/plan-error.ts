/** Why a plan or a model could not be made or printed. */
export type PlanErrorCode =
  /** An argument does not have its declared type; the message names it. */
  | "input-invalid"
  /** The KubeProxyConfiguration is not YAML or JSON, is of another kind, or has a value of a wrong type. */
  | "config-decode"
  /** The configuration can be read but has a value that is not allowed, an unknown mode, or a blank node name. */
  | "config-invalid"
  /** The target to explain does not exist. */
  | "target-unknown"
  /** The mode does not have this form, or not with these options. */
  | "form-unavailable"
  /** The cluster has no Service of this name, or it is headless or belongs to another proxy. */
  | "service-unknown";

/** A plan could not be made, or not printed in the requested form; `message` says what to change. */
export class PlanError extends Error {
  override readonly name = "PlanError";
  readonly code: PlanErrorCode;
  constructor(code: PlanErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
