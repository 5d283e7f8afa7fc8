// Lays the panels of one dashboard out and draws them with Grafana's own components. Only the host is ours: Grafana's panel
// plugins, which pick these components, are not published as packages. Heat maps and state timelines have no published component,
// so they are drawn here and say so.
import React from 'react';
import { createRoot } from 'react-dom/client';
import { createTheme, dateTime, FieldType, getDisplayProcessor, getValueFormat, formattedValueToString, toDataFrame, ThemeContext } from '@grafana/data';
import { BarGauge, BigValue, BigValueColorMode, BigValueGraphMode, GlobalStyles, PanelChrome, Table, TimeSeries } from '@grafana/ui';

const theme = createTheme({ colors: { mode: 'dark' } });
const COLUMN = 66, ROW = 38, GAP = 8;
const dashboard = window.DASHBOARD;

const number = (text) => (Number.isFinite(Number(text)) ? Number(text) : null);

function config(panel, more) {
  const { thresholds, unit, color, mappings } = panel.fieldConfig.defaults;
  const steps = thresholds.steps.map((step) => ({ ...step, value: step.value ?? -Infinity }));
  return { unit, mappings, color, thresholds: { ...thresholds, steps }, ...more };
}

function named(legend, labels) {
  return legend.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => labels[label] ?? '');
}

// One series of one query as a frame.
function frames(panel) {
  return panel.data.flatMap((result, index) =>
    result.map((series) => {
      const points = series.values ?? [series.value];
      const name = named(panel.targets[index].legendFormat, series.metric);
      const field = {
        name, type: FieldType.number, values: points.map(([, text]) => number(text)),
        config: config(panel, { displayName: name, custom: { drawStyle: 'line', ...panel.fieldConfig.defaults.custom } }),
      };
      field.display = getDisplayProcessor({ field, theme });
      const time = { name: 'time', type: FieldType.time, values: points.map(([at]) => at * 1000), config: {} };
      time.display = getDisplayProcessor({ field: time, theme });
      const frame = toDataFrame({ fields: [time, field] });
      frame.fields.forEach((one) => { one.state = { ...one.state, displayName: one === frame.fields[0] ? 'time' : name }; });
      return frame;
    }));
}

function range(list) {
  const times = list.flatMap((frame) => frame.fields[0].values);
  const [from, to] = [dateTime(Math.min(...times)), dateTime(Math.max(...times))];
  return { from, to, raw: { from, to } };
}

function Chart({ panel, width, height }) {
  const list = frames(panel).map((frame, index) => {
    frame.fields[1].state.seriesIndex = index;
    return frame;
  });
  if (list.length === 0) return <Nothing />;
  return <TimeSeries frames={list} width={width} height={height} timeRange={range(list)} timeZone="utc"
    legend={panel.options.legend} options={{}} />;
}

function Stat({ panel, width, height }) {
  const list = frames(panel);
  if (list.length === 0) return <Nothing />;
  return list.map((frame, index) => {
    const field = frame.fields[1];
    const value = field.display(field.values[field.values.length - 1]);
    // The name tells values apart only where there are several.
    if (list.length > 1) value.title = field.config.displayName;
    return <BigValue key={index} theme={theme} width={width / list.length} height={height} value={value}
      colorMode={BigValueColorMode.Background} graphMode={BigValueGraphMode.None} />;
  });
}

function Bars({ panel, width, height }) {
  const list = frames(panel).sort((a, b) => b.fields[1].values[0] - a.fields[1].values[0]);
  if (list.length === 0) return <Nothing />;
  const max = Math.max(...list.map((frame) => frame.fields[1].values[0]));
  return list.map((frame, index) => {
    const field = frame.fields[1];
    const value = { ...field.display(field.values[0]), title: field.config.displayName };
    return <BarGauge key={index} theme={theme} width={width} height={height / list.length - 4} value={value}
      field={{ ...field.config, min: 0, max }} display={field.display} orientation="horizontal" displayMode="basic" namePlacement="top" showUnfilled />;
  });
}

// What the transformations of the panel do: a row for each set of labels.
function Rows({ panel, width, height }) {
  const { renameByName, indexByName } = panel.transformations[1].options;
  const rows = new Map();
  panel.data.forEach((result, index) => result.forEach(({ metric, value }) => {
    const key = JSON.stringify(metric);
    const column = panel.data.length === 1 ? 'Value' : `Value #${panel.targets[index].refId}`;
    rows.set(key, { ...(rows.get(key) ?? metric), [column]: number(value[1]) });
  }));
  const columns = Object.keys(renameByName).sort((a, b) => indexByName[a] - indexByName[b]);
  const sorted = [...rows.values()];
  const by = columns.find((column) => column.startsWith('Value'));
  sorted.sort((a, b) => (b[by] ?? 0) - (a[by] ?? 0));
  if (sorted.length === 0) return <Nothing />;
  const fields = columns.map((column) => {
    const isValue = column.startsWith('Value');
    const properties = panel.fieldConfig.overrides.filter((one) => one.matcher.options === renameByName[column])
      .flatMap((one) => one.properties);
    const property = (id) => properties.find((one) => one.id === id)?.value;
    const [unit, wide, cell, mappings] = ['unit', 'custom.width', 'custom.cellOptions', 'mappings'].map(property);
    const custom = { ...(wide && { width: wide }), ...(cell && { cellOptions: cell }) };
    const field = {
      name: renameByName[column], type: isValue ? FieldType.number : FieldType.string, values: sorted.map((row) => row[column]),
      config: isValue ? config(panel, { unit, decimals: unit === 's' ? 1 : 0, custom, ...(mappings && { mappings }) }) : { custom },
    };
    field.display = getDisplayProcessor({ field, theme });
    return field;
  });
  const frame = toDataFrame({ fields });
  return <Table data={frame} width={width} height={height} />;
}

function Heat({ panel, width, height }) {
  const result = panel.data[0];
  const draw = (canvas) => {
    if (!canvas || result.length === 0) return;
    const bounds = result.slice().sort((a, b) => Number(a.metric.le.replace('+Inf', 'Infinity')) - Number(b.metric.le.replace('+Inf', 'Infinity')));
    const cells = bounds.map((series, index) => series.values.map(([, text], at) =>
      Math.max(0, Number(text) - (index ? Number(bounds[index - 1].values[at]?.[1] ?? 0) : 0))));
    const most = Math.max(...cells.flat());
    const paint = canvas.getContext('2d');
    const format = getValueFormat('s');
    const high = (height - 18) / cells.length, left = 60;
    paint.font = '10px sans-serif';
    cells.forEach((row, index) => {
      const y = height - 18 - (index + 1) * high;
      const wide = (width - left) / row.length;
      row.forEach((count, at) => {
        if (count === 0) return;
        paint.fillStyle = `hsl(${40 - 30 * (count / most)} 90% ${75 - 40 * (count / most)}%)`;
        paint.fillRect(left + at * wide, y, wide - 0.5, high - 1);
      });
      paint.fillStyle = '#9a9aa5';
      if (index % 2 === 0) paint.fillText(bounds[index].metric.le === '+Inf' ? '∞' : formattedValueToString(format(Number(bounds[index].metric.le))), 4, y + high);
    });
    paint.fillText('drawn by the script: no component is published for this panel', left, height - 4);
  };
  return <canvas ref={draw} width={width} height={height} />;
}

function States({ panel, width, height }) {
  const list = frames(panel);
  return <div style={{ padding: 8 }}>
    {list.map((frame, index) => <div key={index} style={{ display: 'flex', alignItems: 'center', marginBottom: 6 }}>
      <span style={{ width: width * 0.3 }}>{frame.fields[1].config.displayName}</span>
      <span style={{ display: 'flex', height: 24, width: width * 0.65 }}>
        {frame.fields[1].values.map((up, at) => <span key={at} style={{ flex: 1, background: up ? '#56a64b' : '#e02f44' }} />)}
      </span>
    </div>)}
    <small style={{ color: '#9a9aa5' }}>drawn by the script: no component is published for this panel</small>
  </div>;
}

const Nothing = () => <div style={{ color: '#9a9aa5', padding: 16, textAlign: 'center' }}>No data</div>;
const KINDS = { timeseries: Chart, stat: Stat, bargauge: Bars, table: Rows, heatmap: Heat, 'state-timeline': States };

class Guard extends React.Component {
  state = {};
  static getDerivedStateFromError(error) { return { error }; }
  render() { return this.state.error ? <pre>{String(this.state.error)}</pre> : this.props.children; }
}

function Panel({ panel }) {
  const { x, y, w, h } = panel.gridPos;
  const place = { position: 'absolute', left: x * COLUMN, top: 44 + y * ROW };
  if (panel.type === 'row') return <h4 style={{ ...place, margin: 0, paddingTop: 10 }}>{panel.title}</h4>;
  const Kind = KINDS[panel.type];
  const [width, height] = [w * COLUMN - GAP, h * ROW - GAP];
  return <div style={place}>
    <PanelChrome title={panel.title} description={panel.description} width={width} height={height} padding="sm">
      {(innerWidth, innerHeight) => <Guard><Kind panel={panel} width={innerWidth} height={innerHeight} /></Guard>}
    </PanelChrome>
  </div>;
}

function Page() {
  return <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <div style={{ position: 'relative', padding: 8, width: 24 * COLUMN }}>
      <h3 style={{ margin: 0 }}>{dashboard.title} <small style={{ color: '#9a9aa5', fontSize: 13 }}>
        drawn with Grafana&apos;s panel components, not by a Grafana server</small></h3>
      {dashboard.panels.map((panel) => <Panel key={panel.id} panel={panel} />)}
    </div>
  </ThemeContext.Provider>;
}

createRoot(document.getElementById('root')).render(<Page />);
