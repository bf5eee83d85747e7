// What the report draws with, and nothing else. README.md says how this becomes echarts.report.min.js.
import { CustomChart, LineChart, ScatterChart, BarChart } from "echarts/charts";
import { GridComponent, LegendPlainComponent, MarkLineComponent, TooltipComponent } from "echarts/components";
import { init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

use([
  BarChart,
  CustomChart,
  LineChart,
  ScatterChart,
  GridComponent,
  LegendPlainComponent,
  MarkLineComponent,
  TooltipComponent,
  CanvasRenderer,
]);

export { init };
