import assert from "node:assert/strict";
import { test } from "node:test";
import { createFamilies } from "../../../../metrics/metric-families.ts";
import { FakeClock } from "../../../sync/testing/fake-clock.ts";
import { createRestMetrics } from "./rest-metrics.ts";

test("requests show under upstream's names and labels", async () => {
  const families = createFamilies();
  const observer = createRestMetrics(families, new FakeClock());
  observer.answered("GET", "cp:6443", "200", 0.3);
  observer.answered("GET", "cp:6443", "<error>", 3);
  observer.retried("GET", "cp:6443", "<error>");
  observer.rateLimited("GET", "cp:6443", 0);
  observer.requestSize("POST", "cp:6443", 300);
  observer.responseSize("GET", "cp:6443", 70_000);
  const text = await families.render();
  for (const line of [
    'rest_client_requests_total{code="200",method="GET",host="cp:6443"} 1',
    'rest_client_requests_total{code="<error>",method="GET",host="cp:6443"} 1',
    'rest_client_request_retries_total{code="<error>",verb="GET",host="cp:6443"} 1',
    'rest_client_request_duration_seconds_bucket{le="0.5",verb="GET",host="cp:6443"} 1',
    'rest_client_request_duration_seconds_sum{verb="GET",host="cp:6443"} 3.3',
    'rest_client_rate_limiter_duration_seconds_bucket{le="0.005",verb="GET",host="cp:6443"} 1',
    'rest_client_request_size_bytes_bucket{le="512",verb="POST",host="cp:6443"} 1',
    'rest_client_response_size_bytes_bucket{le="65536",verb="GET",host="cp:6443"} 0',
    'rest_client_response_size_bytes_bucket{le="262144",verb="GET",host="cp:6443"} 1',
    "# HELP rest_client_requests_total [ALPHA] Number of HTTP requests by status code, method, and host.",
  ]) {
    assert.ok(text.split("\n").includes(line), `${line} in\n${text}`);
  }
});

test("an exec plugin shows how its calls end, how long its certificate lasts, and how old certificates became", async () => {
  const families = createFamilies();
  const clock = new FakeClock(1_000_000);
  const observer = createRestMetrics(families, clock);
  const shows = async (...lines: readonly string[]) => {
    const text = await families.render();
    for (const line of lines) assert.ok(text.split("\n").includes(line), `${line} in\n${text}`);
  };
  await shows("rest_client_exec_plugin_ttl_seconds +Inf", "rest_client_exec_plugin_certificate_rotation_age_count 0");
  const first = { text: "first", validFromMs: 0, validToMs: 1_060_000 };
  observer.pluginCalled(0, "no_error");
  observer.pluginCertified(first, undefined);
  await shows("rest_client_exec_plugin_ttl_seconds 60");
  await clock.advance(90_000);
  await shows("rest_client_exec_plugin_ttl_seconds -30");
  observer.pluginCalled(3, "plugin_execution_error");
  observer.pluginCertified(undefined, first);
  await shows(
    "rest_client_exec_plugin_ttl_seconds +Inf",
    "rest_client_exec_plugin_certificate_rotation_age_sum 1090",
    'rest_client_exec_plugin_call_total{code="0",call_status="no_error"} 1',
    'rest_client_exec_plugin_call_total{code="3",call_status="plugin_execution_error"} 1',
  );
});
