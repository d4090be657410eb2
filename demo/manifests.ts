/** Reads the demo's manifests as the proxy does: what is broken just now stays as it last was good. */
import { relative } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ManifestFolder } from "../src/cluster/manifests/manifest-folder.ts";
import { ManifestReader } from "../src/cluster/manifests/manifest-reader.ts";
import { formatManifestProblem } from "../src/cluster/manifests/problem.ts";
import type { ClusterRecords } from "../src/cluster/manifests/read-manifests.ts";
import { silentLogger } from "../src/logging/logger.ts";

/** What is still being written is waited for so long. */
const SETTLE_MS = 1_000;
const LOOK_EVERY_MS = 10;

/** A folder, read with everything below it, or one file. */
export class Manifests {
  readonly #folder: ManifestFolder;

  private constructor(path: string) {
    const reader = new ManifestReader({ keepsPods: true, limits: { documentMs: 300_000 } });
    this.#folder = new ManifestFolder(path, silentLogger, reader);
  }

  /** Rejects when the path cannot be read. */
  static async open(path: string): Promise<Manifests> {
    const manifests = new Manifests(path);
    await manifests.#folder.load();
    return manifests;
  }

  /** Takes over what has changed. Rejects when the path cannot be read; everything then stays. @returns whether objects have. */
  async refresh(): Promise<boolean> {
    const deadline = performance.now() + SETTLE_MS;
    let isAnyChanged = false;
    for (;;) {
      const { isChanged, isUnsettled } = await this.#folder.refresh(performance.now());
      isAnyChanged ||= isChanged;
      if (!isUnsettled || performance.now() > deadline) return isAnyChanged;
      await sleep(LOOK_EVERY_MS);
    }
  }

  /** One line for each, naming file and line. */
  problems(): readonly string[] {
    return this.#folder
      .problems()
      .map((problem) => formatManifestProblem({ ...problem, file: relative(process.cwd(), problem.file) }));
  }

  cluster(): ClusterRecords {
    const { services, endpointSlices, nodes, serviceCIDRs } = this.#folder.records();
    return {
      services: [...services.values()],
      endpointSlices: [...endpointSlices.values()],
      nodes: [...nodes.values()],
      serviceCIDRs: [...serviceCIDRs.values()],
      problems: this.#folder.problems(),
    };
  }
}
