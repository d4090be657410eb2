/** Everything on `metricsBindAddress` (reference operation.md §9.2). */

import { sharedReading } from "../../../async/shared-reading.ts";
import { createFamilies, type MetricFamilies } from "../../../metrics/metric-families.ts";
import { flagsIndex, profilingPages, verbosityPage } from "../debug/debug-pages.ts";
import { flagzPage, statuszPage, zPage } from "../debug/z-pages.ts";
import { answeringAt, type HttpEndpoint, type ServerOptions, startHttpEndpoint } from "../http/http-endpoint.ts";
import { JSON_TYPE, reply, TEXT } from "../http/http-reply.ts";
import { type HttpHandler, queryOf, routePaths } from "../http/routes.ts";
import { replyMetrics, toPage } from "../http/shared-page.ts";
import { processStartSeconds } from "./runtime-metrics.ts";

export interface MetricsServerOptions extends ServerOptions {
  readonly families: MetricFamilies;
  /** The mode as the configuration spells it, for /proxyMode. */
  readonly mode: string;
  /** The resolved configuration in its versioned form, keys in the API's order, for /configz. */
  readonly configz: Readonly<Record<string, unknown>>;
  /** Every registered flag and its value, for /flagz; absent: no such page (gate ComponentFlagz). */
  readonly flags?: ReadonlyMap<string, string>;
  /** For /statusz; absent: no such page (gate ComponentStatusz). */
  readonly status?: {
    /** `v1.37.0`. */
    readonly version: string;
    /** Name, version and commit of this program. */
    readonly implementation: string;
  };
  /** Changes the log verbosity; absent: no /debug pages, including profiles (`enableProfiling`). */
  readonly setVerbosity?: (level: number) => void;
}

/** The maximum age of a page of metrics. */
const FRESH_MS = 100;

const PING = "ping";

/** This server's check, which always passes; the proxy's health has a port of its own. */
function healthzHandler(slis: ReturnType<typeof createSliMetrics>): HttpHandler {
  return (request, response) => {
    const query = queryOf(request);
    const isExcluded = query.getAll("exclude").includes(PING);
    if (!isExcluded) slis.countCheck(PING);
    const details = `[+]${PING} ${isExcluded ? "excluded: " : ""}ok\nhealthz check passed\n`;
    reply(response, 200, TEXT, query.has("verbose") ? details : "ok");
  };
}

/** `1.37.0` and `1.37` of `v1.37.0`. */
function versions(gitVersion: string): { readonly binaryVersion: string; readonly emulationVersion: string } {
  const binaryVersion = gitVersion.replace(/^v/, "");
  return { binaryVersion, emulationVersion: binaryVersion.split(".").slice(0, 2).join(".") };
}

function metricsRoutes(options: MetricsServerOptions): Readonly<Record<string, HttpHandler>> {
  const { families, clock, flags, status, setVerbosity } = options;
  const slis = createSliMetrics();
  const metricsPage = sharedReading(async () => toPage(await families.render()), FRESH_MS, clock);
  const startSeconds = processStartSeconds();
  const configz = JSON.stringify({ "kubeproxy.config.k8s.io": options.configz });
  const routes: Record<string, HttpHandler> = {
    "/healthz": healthzHandler(slis),
    "/healthz/ping": (_request, response) => reply(response, 200, TEXT, "ok"),
    "/metrics": async (request, response) => {
      await replyMetrics(request, response, families.contentType, await metricsPage(), {
        "Process-Start-Time-Unix": String(Math.floor(startSeconds)),
      });
    },
    "/metrics/slis": async (request, response) => {
      if (request.method === "DELETE") {
        slis.reset();
        reply(response, 200, TEXT, "metrics reset\n");
      } else {
        await replyMetrics(request, response, slis.families.contentType, toPage(await slis.families.render()));
      }
    },
    "/proxyMode": (_request, response) => reply(response, 200, TEXT, options.mode),
    "/configz": (_request, response) => reply(response, 200, JSON_TYPE, configz),
  };
  if (setVerbosity !== undefined) {
    routes["/debug/flags"] = flagsIndex;
    routes["/debug/flags/*"] = flagsIndex;
    routes["/debug/flags/v"] = verbosityPage(setVerbosity);
    Object.assign(routes, profilingPages());
  }
  if (flags !== undefined) routes["/flagz"] = zPage(flagzPage(flags));
  if (status !== undefined) {
    const { version, implementation } = status;
    const paths = ["/configz", ...(flags === undefined ? [] : ["/flagz"]), "/healthz", "/metrics", "/proxyMode"];
    const facts = {
      startMs: startSeconds * 1000,
      uptime: () => process.uptime(),
      paths,
      implementation,
      ...versions(version),
    };
    routes["/statusz"] = zPage(statuszPage(facts));
  }
  return routes;
}

/** Starts the metrics server. @returns `undefined` if the address is empty. */
export function startMetricsServer(options: MetricsServerOptions): HttpEndpoint | undefined {
  if (options.address === "") return undefined;
  return startHttpEndpoint({
    ...options,
    handler: routePaths(metricsRoutes(options)),
    onListenFailure: (error) =>
      options.log.error("starting metrics server failed", error, { cannot: answeringAt(options.address) }),
    onHardFail: (reason) => options.onHardFail(`starting metrics server failed: ${reason}`),
  });
}

/** Makes the page's families, in their own registry. */
function createSliMetrics() {
  const families = createFamilies();
  const current = families.gauge({
    name: "kubernetes_healthcheck",
    help: "Result of the last run of a health check: 1 when it passed.",
    stability: "STABLE",
    labels: ["name", "type"],
  });
  const total = families.counter({
    name: "kubernetes_healthchecks_total",
    help: "Runs of health checks by result.",
    stability: "STABLE",
    labels: ["name", "status", "type"],
  });
  const start = families.gauge({
    name: "process_start_time_seconds",
    help: "Start time of the process since unix epoch in seconds.",
    stability: "none",
  });
  start.set(Math.round(processStartSeconds() * 100) / 100);
  return {
    families,
    /** Records one successful run of a named check. */
    countCheck(name: string) {
      current.set({ name, type: "healthz" }, 1);
      total.inc({ name, status: "success", type: "healthz" });
    },
    reset() {
      current.reset();
      total.reset();
    },
  };
}
