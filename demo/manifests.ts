/** Reads the demo's manifests as the proxy does: a broken file keeps its last good state. */
import { relative } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ManifestFolder } from "../src/agent/cluster/manifests/manifest-folder.ts";
import { ManifestReader } from "../src/agent/cluster/manifests/manifest-reader.ts";
import { silentLogger } from "../src/logging/logger.ts";
import { formatManifestProblem } from "../src/model/manifest-problem.ts";
import type { ClusterRecords } from "../src/model/objects.ts";

/** How long to wait for files that are still being written. */
const SETTLE_MS = 1_000;
const LOOK_EVERY_MS = 10;

/** One file, or a folder with everything below it. */
export class Manifests {
  readonly #folder: ManifestFolder;

  private constructor(path: string) {
    const reader = new ManifestReader({ keepsPods: true });
    this.#folder = new ManifestFolder(path, silentLogger, reader);
  }

  /** Rejects if the path cannot be read. */
  static async open(path: string): Promise<Manifests> {
    const manifests = new Manifests(path);
    await manifests.#folder.load();
    return manifests;
  }

  /** Reads changed files. Rejects, and keeps everything, if the path cannot be read. @returns whether objects have changed. */
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

  /** One line for each problem, with file and line. */
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
