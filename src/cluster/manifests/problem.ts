/** A problem in a folder of manifests, with what one needs to find and fix it. */

export interface ManifestProblem {
  /** A warning leaves out one entry of an object or one of two definitions; an error, at least one document. */
  readonly severity: "error" | "warning";
  readonly file: string;
  /** Counted from 1 as `---` separates them; 0 when the whole file is meant. */
  readonly document: number;
  /** Counted from 1; 0 when unknown. */
  readonly line: number;
  /** `Service default/web`; empty when unknown. */
  readonly object: string;
  /** `spec.ports[0].port`; empty when not about one field. */
  readonly field: string;
  /** The whole sentence, value and what is allowed included. */
  readonly message: string;
}

/** `a.yaml:12: document 2: Service default/web: spec.ports[0].port must be …, got 0`. Pure. */
export function formatManifestProblem(problem: ManifestProblem): string {
  const place = problem.line > 0 ? `${problem.file}:${problem.line}` : problem.file;
  const document = problem.document > 0 ? `document ${problem.document}` : "";
  return [place, document, problem.object, problem.message].filter((part) => part !== "").join(": ");
}
