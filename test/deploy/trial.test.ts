/** "Try one node first" of docs/install.md: at each step exactly one of the two DaemonSets takes each node, on and back. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import { CHECKOUT } from "../docs/markdown.ts";

interface Expression {
  readonly key: string;
  readonly operator: string;
  readonly values: readonly string[];
}

interface DaemonSet {
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly selector: { readonly matchLabels: Readonly<Record<string, string>> };
    readonly updateStrategy: object;
    readonly template: {
      readonly metadata: { readonly labels: Readonly<Record<string, string>> };
      readonly spec: {
        readonly nodeSelector: Readonly<Record<string, string>>;
        readonly affinity?: {
          readonly nodeAffinity: {
            readonly requiredDuringSchedulingIgnoredDuringExecution: {
              readonly nodeSelectorTerms: readonly { readonly matchExpressions: readonly Expression[] }[];
            };
          };
        };
      };
    };
  };
}

type Labels = Readonly<Record<string, string>>;

const read = (path: string): DaemonSet => parse(readFileSync(join(CHECKOUT, path), "utf8"));
/** kubeadm's has no settings of the rollout: those of the API server's defaults. */
const own = patched(read("deploy/kubernetes/daemonset.yaml"), { spec: { updateStrategy: { rollingUpdate: null } } });
const trial = patched(read("deploy/trial/daemonset.yaml"), { spec: { updateStrategy: { rollingUpdate: null } } });
const text = readFileSync(join(CHECKOUT, "docs/install.md"), "utf8");
const section = text.slice(text.indexOf("### Try one node first"), text.indexOf("### Back"));
const patches = [...section.matchAll(/patch daemonset kube-proxy -p '(.*)'$/gm)].map(([, json = ""]) =>
  JSON.parse(json),
);

/** As `kubectl patch` merges maps; `null` removes. */
function patched<T extends object>(target: T, patch: object): T {
  const result = Object.fromEntries<unknown>(Object.entries(target));
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete result[key];
    else if (typeof value !== "object" || Array.isArray(value)) result[key] = value;
    else result[key] = patched(Object(result[key]), value);
  }
  return result as T;
}

/** Whether the DaemonSet wants a pod on a node with these labels. */
function takes({ spec: { template } }: DaemonSet, labels: Labels): boolean {
  const { nodeSelector, affinity } = template.spec;
  const isSelected = Object.entries(nodeSelector).every(([key, value]) => labels[key] === value);
  const terms = affinity?.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms;
  const holds = ({ key, operator, values }: Expression) => {
    assert.equal(operator, "NotIn");
    return !values.includes(labels[key] ?? "");
  };
  return isSelected && (terms?.some(({ matchExpressions }) => matchExpressions.every(holds)) ?? true);
}

const LINUX = { "kubernetes.io/os": "linux" };
const [, labelText = ""] = /kubectl label node NODE (\S+=\S+)/.exec(section) ?? [];
const [labelKey = "", labelValue = ""] = labelText.split("=");
const LABELLED = { ...LINUX, [labelKey]: labelValue };

test("the second DaemonSet is kubeadm's under another name, for labelled nodes only", () => {
  const renamed = JSON.parse(
    JSON.stringify(own).replaceAll('"name":"kube-proxy","namespace"', '"name":"kube-proxy-ts","namespace"'),
  );
  const expected = patched(renamed, {
    metadata: { labels: { "k8s-app": "kube-proxy-ts" } },
    spec: {
      selector: { matchLabels: { "k8s-app": "kube-proxy-ts" } },
      template: {
        metadata: { labels: { "k8s-app": "kube-proxy-ts" } },
        spec: { nodeSelector: { [labelKey]: labelValue } },
      },
    },
  });
  assert.deepEqual(trial, expected);
  assert.notDeepEqual(
    own.spec.selector.matchLabels,
    trial.spec.template.metadata.labels,
    "neither adopts the other's pods",
  );
});

test("going on: the labelled node changes hands, no other pod is restarted", () => {
  const [on] = patches;
  const during = patched(own, on);
  assert.deepEqual(during.spec.updateStrategy, { type: "OnDelete" });
  assert.deepEqual([takes(during, LINUX), takes(trial, LINUX)], [true, false]);
  assert.deepEqual([takes(during, LABELLED), takes(trial, LABELLED)], [false, true]);
});

test("going back: the first DaemonSet is what it was", () => {
  const [on, back] = patches;
  assert.equal(patches.length, 2);
  assert.deepEqual(patched(patched(own, on), back), own);
  assert.match(section, new RegExp(`kubectl label node NODE ${labelKey}-\\s`));
});
