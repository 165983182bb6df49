package poolops

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
	"time"

	"yunhe.dev/yunhe/internal/chart"
	"yunhe.dev/yunhe/internal/core"
	"yunhe.dev/yunhe/internal/fault"
	"yunhe.dev/yunhe/internal/pools/logs"
)

// File is for people.
type File struct {
	Name, Type string
	Content    []byte
}

// Format of a file; each export has its own.
type Format int64

// The formats of logs and of reports; the numbers are the API's.
const (
	LogText Format = 1
	LogJSON Format = 2
	LogCSV  Format = 3

	ReportCSV  Format = 1
	ReportHTML Format = 2
	ReportPDF  Format = 3
)

// ExportLogs writes what of the log the caller may see, oldest first.
func (s *Service) ExportLogs(ctx context.Context, f logs.Filter, format Format) (*File, error) {
	var c core.Check
	if c.Range("format", int64(format), int64(LogText), int64(LogCSV)); c.Err() != nil {
		return nil, c.Err()
	}
	list, err := s.logs.All(ctx, f)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	name, kind := "pool-logs.txt", "text/plain; charset=utf-8"
	table := csv.NewWriter(&b)
	lines := json.NewEncoder(&b)
	header := []string{"time", "level", "source", "message", "node_id", "device_id", "slice_id", "user_id", "tenant_id", "group_id", "details"}
	if format == LogCSV {
		_ = table.Write(header) // into memory
	}
	for i := len(list) - 1; i >= 0; i-- {
		e := list[i]
		row := []string{e.At.UTC().Format(time.RFC3339Nano), e.Level.String(), e.Source, e.Message, e.Node, e.Device, e.Slice, e.User, e.Tenant, e.Group, e.Details}
		switch format {
		case LogCSV:
			for j := range row {
				row[j] = plainCell(row[j])
			}
			_ = table.Write(row)
		case LogJSON:
			object := map[string]string{}
			for j, key := range header {
				if row[j] != "" {
					object[key] = row[j]
				}
			}
			if err := lines.Encode(object); err != nil {
				return nil, err
			}
		default:
			fmt.Fprintf(&b, "%s %-5s %s", row[0], row[1], e.Message)
			for j, key := range header[4:10] {
				if row[4+j] != "" {
					fmt.Fprintf(&b, " %s=%s", key, row[4+j])
				}
			}
			b.WriteString(strings.TrimRight(" "+e.Details, " ") + "\n")
		}
	}
	table.Flush()
	switch format {
	case LogCSV:
		name, kind = "pool-logs.csv", "text/csv; charset=utf-8"
	case LogJSON:
		name, kind = "pool-logs.jsonl", "application/jsonl"
	}
	return &File{name, kind, b.Bytes()}, nil
}

// plainCell keeps a spreadsheet from taking a text for a formula.
func plainCell(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t", rune(s[0])) {
		return "'" + s
	}
	return s
}

// ReportKind says what a report is of; the numbers are the API's.
type ReportKind int64

// The kinds of reports.
const (
	Resources ReportKind = 1
	Tasks     ReportKind = 2
	Operation ReportKind = 3
)

// table of a report: texts, and numbers as texts.
type table struct {
	Title string
	Head  []string
	Rows  [][]string
}

type report struct {
	Title, From, To string
	Span            string
	Tables          []table
	Pictures        []template.HTML
}

// Report writes what was used from a time to another.
func (s *Service) Report(ctx context.Context, kind ReportKind, format Format, from, to time.Time, language string) (*File, error) {
	var c core.Check
	c.Range("kind", int64(kind), int64(Resources), int64(Operation))
	c.Range("format", int64(format), int64(ReportCSV), int64(ReportPDF))
	if language != "" && language != "en" && language != "zh" {
		c.Add("language", `must be "en" or "zh", got %q`, clip(language))
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	st, err := s.Statistics(ctx, from, to)
	if err != nil {
		return nil, err
	}
	r, err := st.report(kind, words[language == "zh"])
	if err != nil {
		return nil, err
	}
	name := "pool-" + [...]string{"", "resources", "tasks", "operation"}[kind]
	switch format {
	case ReportCSV:
		return &File{name + ".csv", "text/csv; charset=utf-8", r.csv()}, nil
	case ReportPDF:
		return &File{name + ".pdf", "application/pdf", r.pdf()}, nil
	}
	var b bytes.Buffer
	if err := page.Execute(&b, r); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the report cannot be written")
	}
	return &File{name + ".html", "text/html; charset=utf-8", b.Bytes()}, nil
}

func clip(s string) string { return s[:min(len(s), 64)] }

// words of reports, by whether they are Chinese.
var words = map[bool]map[string]string{
	false: {
		"1": "Accelerator pool: resources", "2": "Accelerator pool: task scheduling", "3": "Accelerator pool: operation", "span": "From %s to %s (UTC), counted by the hour",
		"devices": "Devices", "groups": "Logical groups", "users": "Users", "times": "Over time", "queueing": "Queueing", "reasons": "Why slices ended",
		"device": "Device", "group": "Group", "user": "User", "time": "Begins", "lent": "Compute lent %", "busy": "Device time %", "memory": "Memory lent %", "used": "Memory used %", "energy": "Energy Wh", "sliceenergy": "Of slices Wh", "known": "Energy as counters and drivers tell it, or by a declared model of the device",
		"lenth": "Devices × h", "busys": "Device time s", "memoryh": "Memory GiB × h", "usedh": "Used GiB × h", "heldh": "Slices × h",
		"requested": "Requested", "placed": "Placed", "ended": "Ended", "failed": "Failed", "mean": "Mean wait s", "max": "Longest wait s", "reason": "Reason", "count": "Slices", "percent": "%",
	},
	true: {
		"1": "加速卡资源池:资源", "2": "加速卡资源池:任务调度", "3": "加速卡资源池:运行", "span": "自 %s 至 %s(UTC),按小时统计",
		"devices": "设备", "groups": "逻辑资源组", "users": "用户", "times": "随时间变化", "queueing": "排队", "reasons": "切片结束原因",
		"device": "设备", "group": "组", "user": "用户", "time": "开始", "lent": "已分配算力 %", "busy": "设备时间 %", "memory": "已分配显存 %", "used": "已用显存 %", "energy": "能耗 Wh", "sliceenergy": "切片能耗 Wh", "known": "能耗来自计数器与驱动,或设备的声明模型",
		"lenth": "设备×小时", "busys": "设备时间 秒", "memoryh": "显存 GiB×小时", "usedh": "已用 GiB×小时", "heldh": "切片×小时",
		"requested": "请求数", "placed": "已放置", "ended": "已结束", "failed": "失败", "mean": "平均等待 秒", "max": "最长等待 秒", "reason": "原因", "count": "切片数", "percent": "%",
	},
}

func wattHours(millijoules int64) string { return decimals(float64(millijoules)/3.6e6, 3) }

func decimals(v float64, n int) string { return strconv.FormatFloat(v, 'f', n, 64) }

// part is a share in percent, "" of nothing.
func part(of, all int64) string {
	if all == 0 {
		return ""
	}
	return decimals(float64(of)*100/float64(all), 1)
}

// busyPercent is the device time of what there was, in percent; "" of nothing.
func (u *Use) busyPercent() string {
	if u.ComputeThere == 0 {
		return ""
	}
	return decimals(float64(u.Busy)/1e6*100*100/float64(u.ComputeThere), 1)
}

func (s *Statistics) report(kind ReportKind, w map[string]string) (*report, error) {
	r := &report{Title: w[strconv.Itoa(int(kind))], From: s.From.Format(time.RFC3339), To: s.To.Format(time.RFC3339)}
	r.Span = fmt.Sprintf(w["span"], s.From.Format("2006-01-02 15:04"), s.To.Format("2006-01-02 15:04")) + ". " + w["known"]
	there := func(title, name string, list []Use) table {
		t := table{Title: w[title], Head: []string{w[name], w["lent"], w["busy"], w["memory"], w["used"], w["lenth"], w["heldh"], w["energy"], w["sliceenergy"]}}
		for _, u := range list {
			t.Rows = append(t.Rows, []string{u.Name, part(u.ComputeLent, u.ComputeThere), u.busyPercent(), part(u.MemoryLent, u.MemoryThere), part(u.MemoryUsed, u.MemoryThere), decimals(float64(u.ComputeLent)/100/3600, 3), decimals(float64(u.Seconds)/3600, 3), wattHours(u.Energy), wattHours(u.SliceEnergy)})
		}
		return t
	}
	whose := func(title, name string, list []Use) table {
		t := table{Title: w[title], Head: []string{w[name], w["lenth"], w["busys"], w["memoryh"], w["usedh"], w["heldh"], w["sliceenergy"]}}
		for _, u := range list {
			t.Rows = append(t.Rows, []string{u.Name, decimals(float64(u.ComputeLent)/100/3600, 3), decimals(float64(u.Busy)/1e6, 1), decimals(float64(u.MemoryLent)/1024/3600, 3), decimals(float64(u.MemoryUsed)/1024/3600, 3), decimals(float64(u.Seconds)/3600, 3), wattHours(u.SliceEnergy)})
		}
		return t
	}
	switch kind {
	case Resources:
		r.Tables = []table{there("devices", "device", s.Devices)}
		return r, r.bars(w, s.Devices)
	case Tasks:
		q := table{Title: w["queueing"], Head: []string{w["group"], w["requested"], w["placed"], w["ended"], w["failed"], w["mean"], w["max"]}}
		for _, x := range s.Queueing {
			n := func(n int64) string { return strconv.FormatInt(n, 10) }
			q.Rows = append(q.Rows, []string{x.Group, n(x.Requested), n(x.Placed), n(x.Ended), n(x.Failed), decimals(x.MeanWait.Seconds(), 3), decimals(x.MaxWait.Seconds(), 3)})
		}
		why := table{Title: w["reasons"], Head: []string{w["reason"], w["count"]}}
		for _, x := range s.Reasons {
			why.Rows = append(why.Rows, []string{x.Text, strconv.FormatInt(x.Count, 10)})
		}
		r.Tables = []table{q, whose("groups", "group", s.Groups), whose("users", "user", s.Users), why}
	default:
		r.Tables = []table{there("times", "time", s.Times)}
		return r, r.lines(w, s.Times)
	}
	return r, nil
}

func percents(list []Use, of func(*Use) string) []float64 {
	out := make([]float64, len(list))
	for i := range list {
		out[i], _ = strconv.ParseFloat(of(&list[i]), 64) // "" is 0
	}
	return out
}

func series(w map[string]string, list []Use) []chart.Series {
	return []chart.Series{
		{Name: w["lent"], Values: percents(list, func(u *Use) string { return part(u.ComputeLent, u.ComputeThere) })},
		{Name: w["busy"], Values: percents(list, (*Use).busyPercent)},
		{Name: w["memory"], Values: percents(list, func(u *Use) string { return part(u.MemoryLent, u.MemoryThere) })},
	}
}

func (r *report) bars(w map[string]string, list []Use) error {
	if len(list) == 0 || len(list) > 24 {
		return nil
	}
	b := &chart.Bars{Title: w["devices"], Y: w["percent"], Series: series(w, list)}
	for _, u := range list {
		b.Names = append(b.Names, u.Name)
	}
	return r.draw(b.Write)
}

func (r *report) lines(w map[string]string, list []Use) error {
	if len(list) < 2 {
		return nil
	}
	c := &chart.Chart{Title: w["times"], X: w["time"], Y: w["percent"], Series: series(w, list)}
	for i, u := range list {
		tick := ""
		if every := (len(list) + 7) / 8; i%every == 0 {
			tick = strings.TrimSuffix(strings.Replace(u.Name[5:], "T", " ", 1), ":00Z")
		}
		c.Ticks = append(c.Ticks, tick)
	}
	return r.draw(c.Write)
}

// draw adds a picture. What it shows of names is escaped by chart.
func (r *report) draw(write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	r.Pictures = append(r.Pictures, template.HTML(b.String())) //nolint:gosec // see above
	return nil
}

func (r *report) csv() []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	_ = w.Write([]string{r.Title, r.From, r.To}) // into memory
	for _, t := range r.Tables {
		_ = w.Write(nil)
		_ = w.Write([]string{t.Title})
		_ = w.Write(t.Head)
		for _, row := range t.Rows {
			cells := make([]string, len(row))
			for i, c := range row {
				cells[i] = plainCell(c)
			}
			_ = w.Write(cells)
		}
	}
	w.Flush()
	return b.Bytes()
}

var page = template.Must(template.New("report").Parse(`<!doctype html>
<html><head><meta charset="utf-8"><title>{{.Title}}</title><style>
body{font-family:sans-serif;margin:2rem;color:#222;max-width:60rem}
table{border-collapse:collapse;margin:0 0 1.5rem;width:100%}
th,td{border-bottom:1px solid #ddd;padding:.3rem .6rem;text-align:right;font-variant-numeric:tabular-nums}
th:first-child,td:first-child{text-align:left;word-break:break-word}
</style></head><body><h1>{{.Title}}</h1><p>{{.Span}}</p>
{{range .Pictures}}<div>{{.}}</div>
{{end}}{{range .Tables}}<h2>{{.Title}}</h2><table><thead><tr>{{range .Head}}<th>{{.}}</th>{{end}}</tr></thead><tbody>
{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</tbody></table>
{{end}}</body></html>
`))
