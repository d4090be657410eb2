/** Measurements of connection tracking, read at each scrape. */
import { systemClock } from "../../../async/clock.ts";
import { sharedReading } from "../../../async/shared-reading.ts";
import type { ConntrackTable } from "../../../kernel/conntrack/conntrack.ts";
import type { MetricFamilies } from "../../../metrics/metric-families.ts";

/** One reading serves a whole scrape. */
const SAME_SCRAPE_MS = 100;

/** Defines the families; none if there is no table. What cannot be read is left out of the scrape. */
export function defineConntrackMetrics(families: MetricFamilies, { statistics }: ConntrackTable): void {
  if (statistics === undefined) return;
  const read = sharedReading(() => statistics().catch(() => undefined), SAME_SCRAPE_MS, systemClock);
  const gauge = (name: string, help: string, field: "entries" | "max") =>
    families.scraped("gauge", { name: `kubeproxy_conntrack_${name}`, help }, async () => (await read())?.[field]);
  gauge("entries", "Connections that the kernel tracks", "entries");
  gauge("max_entries", "Connections that the kernel can track", "max");
  families.scrapedSamples(
    {
      name: "kubeproxy_conntrack_lost_total",
      help: "Cumulative packets and connections that connection tracking lost, by reason",
      labels: ["reason"],
    },
    async () => {
      const found = await read();
      if (found === undefined) return [];
      const { invalid, insertFailed, dropped, earlyDropped } = found;
      const byReason = { invalid, insert_failed: insertFailed, table_full: dropped, early_drop: earlyDropped };
      return Object.entries(byReason).map(([reason, value]) => ({ labels: { reason }, value }));
    },
  );
}
