/** A problem in a manifest folder, with the information needed to find and fix it. */

export interface ManifestProblem {
  /** A warning drops one entry of an object; an error drops at least one object or definition. */
  readonly severity: "error" | "warning";
  readonly file: string;
  /** Counted from 1, separated by `---`; 0 for the whole file. */
  readonly document: number;
  /** Counted from 1; 0 if unknown. */
  readonly line: number;
  /** `Service default/web`; empty if unknown. */
  readonly object: string;
  /** `spec.ports[0].port`; empty if the problem is not about one field. */
  readonly field: string;
  /** The whole sentence, including the value and what is allowed. */
  readonly message: string;
}

/** `a.yaml:12: document 2: Service default/web: spec.ports[0].port must be …, got 0`. */
export function formatManifestProblem(problem: ManifestProblem): string {
  const place = problem.line > 0 ? `${problem.file}:${problem.line}` : problem.file;
  const document = problem.document > 0 ? `document ${problem.document}` : "";
  return [place, document, problem.object, problem.message].filter((part) => part !== "").join(": ");
}
