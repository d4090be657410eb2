/** What `kubectl apply` and `helm install` would be given: kubeadm's objects, and both ways the same (reference operation.md §8.3, §14). */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { parseAllDocuments } from "yaml";
import { resolveDocument } from "../../src/agent/settings/defaults.ts";
import { decodeConfiguration } from "../../src/agent/settings/v1alpha1-decode.ts";
import { configErrors } from "../../src/agent/settings/validate.ts";
import { CONFIG_CONF, kubeconfigConf } from "../apiserver/kubeadm-files.ts";
import { ChartRefusal, renderChart } from "./helm-template.ts";

const DEPLOY = fileURLToPath(new URL("../../deploy/", import.meta.url));
const CHART = join(DEPLOY, "chart");
const VERSION: string = JSON.parse(readFileSync(join(DEPLOY, "../package.json"), "utf8")).version;
const ENDPOINT = "https://control-plane.example:6443";
/** The values that make the plain files of the chart. */
const PLAIN = { controlPlaneEndpoint: ENDPOINT, restartOnConfigChange: false };

interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly [field: string]: unknown;
}

function readManifests(text: string, title: string): readonly Manifest[] {
  return parseAllDocuments(text, { uniqueKeys: true })
    .filter((document) => document.contents !== null)
    .map((document) => {
      assert.deepEqual([document.errors, document.warnings], [[], []], title);
      return document.toJS();
    });
}

const titleOf = ({ kind, metadata }: Manifest) => `${kind} ${metadata.name}`;
const byTitle = (manifests: Iterable<Manifest>) => new Map([...manifests].map((each) => [titleOf(each), each]));

function plainManifests(): ReadonlyMap<string, Manifest> {
  const folder = join(DEPLOY, "kubernetes");
  return byTitle(readdirSync(folder).flatMap((name) => readManifests(readFileSync(join(folder, name), "utf8"), name)));
}

function chartManifests(values: unknown): ReadonlyMap<string, Manifest> {
  const templates = [...renderChart(CHART, values)].filter(([name]) => name.endsWith(".yaml"));
  return byTitle(templates.flatMap(([name, text]) => readManifests(text, name)));
}

function configMapOf(manifests: ReadonlyMap<string, Manifest>): Readonly<Record<string, string>> {
  const data = manifests.get("ConfigMap kube-proxy")?.data;
  assert.ok(typeof data === "object" && data !== null);
  return Object.fromEntries(Object.entries(data).map(([key, value]) => [key, String(value)]));
}

const resolved = (text: string) => {
  const { document, strictError } = decodeConfiguration(text);
  assert.equal(strictError, undefined);
  return resolveDocument(document);
};

/** Reference operation.md §14.1, but for the image. */
const KUBEADM_DAEMON_SET = {
  apiVersion: "apps/v1",
  kind: "DaemonSet",
  metadata: { name: "kube-proxy", namespace: "kube-system", labels: { "k8s-app": "kube-proxy" } },
  spec: {
    selector: { matchLabels: { "k8s-app": "kube-proxy" } },
    updateStrategy: { type: "RollingUpdate" },
    template: {
      metadata: { labels: { "k8s-app": "kube-proxy" } },
      spec: {
        priorityClassName: "system-node-critical",
        containers: [
          {
            name: "kube-proxy",
            image: `kube-proxy-ts:${VERSION}`,
            imagePullPolicy: "IfNotPresent",
            command: [
              "/usr/local/bin/kube-proxy",
              "--config=/var/lib/kube-proxy/config.conf",
              "--hostname-override=$(NODE_NAME)",
            ],
            securityContext: { privileged: true },
            volumeMounts: [
              { mountPath: "/var/lib/kube-proxy", name: "kube-proxy" },
              { mountPath: "/run/xtables.lock", name: "xtables-lock", readOnly: false },
              { mountPath: "/lib/modules", name: "lib-modules", readOnly: true },
            ],
            env: [{ name: "NODE_NAME", valueFrom: { fieldRef: { fieldPath: "spec.nodeName" } } }],
          },
        ],
        hostNetwork: true,
        serviceAccountName: "kube-proxy",
        volumes: [
          { name: "kube-proxy", configMap: { name: "kube-proxy" } },
          { name: "xtables-lock", hostPath: { path: "/run/xtables.lock", type: "FileOrCreate" } },
          { name: "lib-modules", hostPath: { path: "/lib/modules" } },
        ],
        tolerations: [{ operator: "Exists" }],
        nodeSelector: { "kubernetes.io/os": "linux" },
      },
    },
  },
};

/** The keys by which Kubernetes' API merges the lists of a strategic patch that occur here; other lists are replaced. */
const MERGE_KEYS: Readonly<Record<string, string>> = { containers: "name", volumes: "name", volumeMounts: "mountPath" };

function strategicallyMerged(target: unknown, patch: unknown, field = ""): unknown {
  const key = MERGE_KEYS[field];
  if (Array.isArray(target) && Array.isArray(patch) && key !== undefined) {
    const left = [...patch];
    const merged = target.map((item) => {
      const at = left.findIndex((each) => each[key] === item[key]);
      return at < 0 ? item : strategicallyMerged(item, left.splice(at, 1)[0]);
    });
    return [...merged, ...left];
  }
  if (Array.isArray(patch) || typeof patch !== "object" || typeof target !== "object") return patch;
  const result = { ...Object(target) };
  for (const [name, value] of Object.entries(Object(patch))) {
    result[name] = name in result ? strategicallyMerged(result[name], value, name) : value;
  }
  return result;
}

test("the DaemonSet is kubeadm's under kubeadm's patch: another image, the socket, and a rollout that waits for the rules", () => {
  const text = readFileSync(join(DEPLOY, "kubeadm/kubeproxydaemonset+strategic.yaml"), "utf8");
  const [patch] = readManifests(text, "kubeadm's patch");
  const own = plainManifests().get("DaemonSet kube-proxy");
  assert.deepEqual(own, strategicallyMerged(KUBEADM_DAEMON_SET, patch));
  const [container] = Object(own?.spec).template.spec.containers;
  assert.deepEqual(container.command.slice(0, 3), KUBEADM_DAEMON_SET.spec.template.spec.containers[0]?.command);
});

test("the pods are a service account that has the role system:node-proxier and no other", () => {
  const manifests = plainManifests();
  const account = { kind: "ServiceAccount", name: "kube-proxy", namespace: "kube-system" };
  assert.deepEqual(manifests.get("ServiceAccount kube-proxy")?.metadata, {
    name: "kube-proxy",
    namespace: "kube-system",
  });
  const bindings = [...manifests.values()].filter(({ kind }) => kind.endsWith("Binding"));
  assert.deepEqual(
    bindings.map((binding) => [titleOf(binding), binding.roleRef, binding.subjects]),
    [
      [
        "ClusterRoleBinding kubeadm:node-proxier",
        { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "system:node-proxier" },
        [account],
      ],
      [
        "RoleBinding kube-proxy",
        { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name: "kube-proxy" },
        // With its group, as the API server stores it: else every `kubectl apply` finds a difference.
        [
          {
            apiGroup: "rbac.authorization.k8s.io",
            kind: "Group",
            name: "system:bootstrappers:kubeadm:default-node-token",
          },
        ],
      ],
    ],
  );
  assert.deepEqual(manifests.get("Role kube-proxy")?.rules, [
    { apiGroups: [""], resources: ["configmaps"], resourceNames: ["kube-proxy"], verbs: ["get"] },
  ]);
});

test("the configuration means what kubeadm's means, and the kubeconfig is kubeadm's", () => {
  const data = configMapOf(plainManifests());
  assert.deepEqual(resolved(data["config.conf"] ?? ""), resolved(CONFIG_CONF));
  const kubeconfig = (text: string) => parseAllDocuments(text).map((document) => document.toJS());
  assert.deepEqual(kubeconfig(data["kubeconfig.conf"] ?? ""), kubeconfig(kubeconfigConf(ENDPOINT)));
});

test("the chart gives the same objects as the plain files", () => {
  const chart = chartManifests(PLAIN);
  const plain = plainManifests();
  assert.deepEqual([...chart.keys()].sort(), [...plain.keys()].sort());
  const withoutData = (manifests: ReadonlyMap<string, Manifest>) =>
    [...manifests.values()].map((manifest) => ({ ...manifest, data: undefined }));
  assert.deepEqual(new Set(withoutData(chart)), new Set(withoutData(plain)));
  const documents = (manifests: ReadonlyMap<string, Manifest>) =>
    Object.entries(configMapOf(manifests)).map(([key, text]) => [key, readManifests(text, key)]);
  assert.deepEqual(documents(chart), documents(plain));
});

test("every field of the configuration can be set through the chart's values", () => {
  const config = {
    mode: "nftables",
    clusterCIDR: "10.1.0.0/16,fd00:1::/56",
    metricsBindAddress: "0.0.0.0:10249",
    nodePortAddresses: ["primary"],
    nftables: { minSyncPeriod: "100ms", masqueradeBit: 3 },
  };
  const data = configMapOf(chartManifests({ ...PLAIN, config }));
  const result = resolved(data["config.conf"] ?? "");
  assert.deepEqual(configErrors(result), []);
  assert.deepEqual(
    [result.mode, result.metricsBindAddress, result.minSyncPeriodMs, result.detectLocal.clusterCIDRs],
    ["nftables", "0.0.0.0:10249", 100, ["10.1.0.0/16", "fd00:1::/56"]],
  );
});

test("what the chart's other values change is what they are named for", () => {
  const pod = (values: object): Record<string, unknown> => {
    const set = chartManifests({ ...PLAIN, ...values }).get("DaemonSet kube-proxy");
    return JSON.parse(JSON.stringify(set?.spec)).template;
  };
  const resources = { requests: { cpu: "100m", memory: "150Mi" } };
  const env = [{ name: "HTTPS_PROXY", value: "http://10.0.0.9:3128" }];
  const changed = JSON.stringify(
    pod({
      image: { repository: "registry.example/kpts", tag: "7" },
      resources,
      env,
      imagePullSecrets: [{ name: "s" }],
    }),
  );
  assert.match(changed, /"image":"registry.example\/kpts:7"/);
  assert.ok(changed.includes(JSON.stringify(resources).slice(1, -1)));
  assert.match(changed, /"NODE_NAME".*"HTTPS_PROXY"/);
  assert.match(changed, /"imagePullSecrets":\[\{"name":"s"\}\]/);
  assert.doesNotMatch(JSON.stringify(pod({ inspectSocket: false })), /inspect/);
  const told = pod({
    extraArgs: ["--v=2"],
    priorityClassName: "mine",
    restricted: true,
    inspectBindAddress: "127.0.0.1:10260",
  });
  const { priorityClassName, containers, volumes } = told.spec as {
    priorityClassName: string;
    containers: { command: string[]; volumeMounts: { name: string; mountPath: string }[] }[];
    volumes: object[];
  };
  assert.equal(priorityClassName, "mine");
  assert.deepEqual(containers[0]?.command.slice(-3), [
    "--inspect-socket=/run/kube-proxy/inspect.sock",
    "--inspect-bind-address=127.0.0.1:10260",
    "--v=2",
  ]);
  // The root file system may be read-only.
  assert.equal(containers[0]?.volumeMounts.find(({ name }) => name === "inspect")?.mountPath, "/run/kube-proxy");
  assert.ok(volumes.some((volume) => JSON.stringify(volume) === '{"name":"inspect","emptyDir":{}}'));
  const sums = [{}, { config: { mode: "nftables" } }].map((values) =>
    JSON.stringify(pod({ ...values, restartOnConfigChange: true }).metadata),
  );
  assert.match(sums[0] ?? "", /"checksum\/config":"[0-9a-f]{64}"/);
  assert.notEqual(sums[0], sums[1]);
});

test("metrics are monitored only where they can be reached", () => {
  const serviceMonitor = { enabled: true, labels: { release: "prometheus" } };
  assert.throws(() => chartManifests({ ...PLAIN, serviceMonitor }), /needs config\.metricsBindAddress/);
  const manifests = chartManifests({ ...PLAIN, serviceMonitor, config: { metricsBindAddress: "0.0.0.0:10249" } });
  assert.deepEqual(manifests.get("ServiceMonitor kube-proxy")?.metadata, {
    name: "kube-proxy",
    namespace: "kube-system",
    labels: { "k8s-app": "kube-proxy", release: "prometheus" },
  });
  assert.ok(manifests.has("Service kube-proxy-metrics"));
});

test("a PodMonitor scrapes the port that the pods name, and not beside a ServiceMonitor", () => {
  const podMonitor = { enabled: true };
  assert.throws(() => chartManifests({ ...PLAIN, podMonitor }), /needs config\.metricsBindAddress/);
  const config = { metricsBindAddress: "0.0.0.0:10249" };
  const manifests = chartManifests({ ...PLAIN, podMonitor, config });
  const { spec } = Object(manifests.get("PodMonitor kube-proxy"));
  assert.deepEqual(spec.podMetricsEndpoints, [{ port: "metrics", interval: "30s" }]);
  const { template } = Object(manifests.get("DaemonSet kube-proxy")?.spec);
  assert.deepEqual(template.spec.containers[0].ports, [{ name: "metrics", containerPort: 10249, protocol: "TCP" }]);
  assert.equal(template.metadata.labels[spec.jobLabel], "kube-proxy", "the job that the alerts are about");
  assert.throws(
    () => chartManifests({ ...PLAIN, podMonitor, serviceMonitor: { enabled: true }, config }),
    /scraped twice/,
  );
});

test("the chart's alerts and dashboard are the files', with the runbook where the values say", () => {
  const runbookUrl = "https://wiki.example/kube-proxy";
  const manifests = chartManifests({
    ...PLAIN,
    prometheusRule: { enabled: true, runbookUrl },
    grafanaDashboard: { enabled: true },
  });
  const rules = readFileSync(join(CHART, "files/rules.yaml"), "utf8");
  const [expected] = parseAllDocuments(rules.replaceAll(/https:\/\/kube-proxy-ts\.example[^#\s]*md/g, runbookUrl));
  assert.deepEqual(manifests.get("PrometheusRule kube-proxy")?.spec, expected?.toJS());
  const { metadata, data } = Object(manifests.get("ConfigMap kube-proxy-dashboard"));
  assert.deepEqual(metadata.labels, { grafana_dashboard: "1" });
  const dashboard = JSON.parse(readFileSync(join(CHART, "files/dashboard.json"), "utf8"));
  assert.deepEqual(JSON.parse(data["kube-proxy.json"]), dashboard);
});

test("probes ask the health port, where they are wanted", () => {
  const container = (probes: object): Record<string, unknown> =>
    Object(chartManifests({ ...PLAIN, probes }).get("DaemonSet kube-proxy")?.spec).template.spec.containers[0];
  const none = container({ readiness: false });
  assert.equal(none.livenessProbe ?? none.readinessProbe, undefined, "as kubeadm has it");
  const { readinessProbe, livenessProbe } = container({ liveness: true });
  assert.deepEqual(
    [readinessProbe, livenessProbe].map((probe) => Object(probe).httpGet),
    [
      { path: "/readyz", port: 10256 },
      { path: "/livez", port: 10256 },
    ],
  );
});

test("ebpf mode has the node's bpf file system, cgroups and network namespaces: in the chart as in the patch", () => {
  const podOf = (values: object) =>
    Object(chartManifests({ ...PLAIN, ...values }).get("DaemonSet kube-proxy")?.spec).template.spec;
  const [plain, inMode] = [podOf({}), podOf({ config: { mode: "ebpf" } })];
  const [patch] = parseAllDocuments(readFileSync(join(DEPLOY, "ebpf-mounts.yaml"), "utf8"));
  const added = patch?.toJS().spec.template.spec;
  assert.deepEqual(inMode.volumes, [...plain.volumes, ...added.volumes]);
  const mountsOf = (pod: typeof added) => pod.containers[0].volumeMounts;
  assert.deepEqual(mountsOf(inMode), [...mountsOf(plain), ...mountsOf(added)]);
  assert.equal(added.containers[0].name, plain.containers[0].name);
  const names = (list: readonly { readonly name: string }[]) => list.map(({ name }) => name);
  assert.deepEqual(names(mountsOf(added)), names(added.volumes));
});

test("the chart restricts the pod as the patch does", () => {
  const podOf = (values: object) =>
    Object(chartManifests({ ...PLAIN, ...values }).get("DaemonSet kube-proxy")?.spec).template.spec;
  const [plain, restricted] = [podOf({}), podOf({ restricted: true })];
  const [patch] = parseAllDocuments(readFileSync(join(DEPLOY, "restricted.yaml"), "utf8"));
  const added = patch?.toJS().spec.template.spec;
  assert.deepEqual(restricted, {
    ...plain,
    initContainers: added.initContainers,
    containers: [{ ...plain.containers[0], securityContext: added.containers[0].securityContext }],
  });
  assert.equal(added.initContainers[0].image, plain.containers[0].image);
  assert.throws(() => podOf({ restricted: true, config: { mode: "ebpf" } }), /restricted is not for mode ebpf/);
});

test("values that mean nothing are refused by name", () => {
  const refused: readonly (readonly [object, RegExp])[] = [
    [{ serviceMonitors: {} }, /values\.serviceMonitors: is not a value of this chart/],
    [{ probes: { readiness: "yes" } }, /values\.probes\.readiness: must be boolean/],
    [{ config: { mode: "kernelspace" } }, /values\.config\.mode: must be one of/],
    [{ controlPlaneEndpoint: "10.0.0.1:6443" }, /values\.controlPlaneEndpoint: must match/],
    [{ image: { pullPolicy: "Sometimes" } }, /values\.image\.pullPolicy/],
  ];
  for (const [values, reason] of refused) assert.throws(() => chartManifests({ ...PLAIN, ...values }), reason);
});

test("the chart's README has every value, and its notes what to do next", () => {
  const [values] = parseAllDocuments(readFileSync(join(CHART, "values.yaml"), "utf8"));
  const isLeafMap = (key: string) =>
    ["config", "resources", "updateStrategy", "nodeSelector", "podAnnotations"].includes(key);
  const paths = Object.entries(values?.toJS()).flatMap(([key, value]) => {
    const isMap = typeof value === "object" && value !== null && !Array.isArray(value) && !isLeafMap(key);
    return isMap ? Object.keys(value).map((inner) => `${key}.${inner}`) : [key];
  });
  const readme = readFileSync(join(CHART, "README.md"), "utf8");
  for (const path of paths) assert.ok(readme.includes(`| \`${path}\` |`), path);
  const notes = (config: object) => renderChart(CHART, { ...PLAIN, config }).get("NOTES.txt") ?? "";
  assert.match(notes({}), /rollout status daemonset\/kube-proxy[\s\S]*set config\.metricsBindAddress/);
  assert.doesNotMatch(notes({ metricsBindAddress: "0.0.0.0:10249" }), /metricsBindAddress/);
});

test("the chart says what must be set", () => {
  assert.throws(() => chartManifests({}), ChartRefusal);
  assert.throws(() => chartManifests({}), /set controlPlaneEndpoint to where/);
});
