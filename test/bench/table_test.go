//go:build bench

package bench

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// figure is one line of the report.
type figure struct {
	name   string
	value  string
	ratio  string
	target string
	ok     bool // meaningless without a target
}

// table gathers the figures of all sections.
type table struct{ figures []figure }

func (t *table) add(f figure) { t.figures = append(t.figures, f) }

// addText is a figure without a target.
func (t *table) addText(name, format string, args ...any) {
	t.add(figure{name: name, value: fmt.Sprintf(format, args...)})
}

// addRate is events per second; atLeast is the target of its ratio to something else
// of the same run.
func (t *table) addRate(name string, value, ratio float64, to string, atLeast float64) {
	t.add(figure{
		name: name, value: perSecond(value, "events"), ratio: fmt.Sprintf("%.2f of %s", ratio, to),
		target: fmt.Sprintf(">= %.2f", atLeast), ok: ratio >= atLeast,
	})
}

// addComparison adds events per second relative to another figure of the run, without a target.
func (t *table) addComparison(name string, value, ratio float64, to string) {
	t.add(figure{name: name, value: perSecond(value, "events"), ratio: fmt.Sprintf("%.2f of %s", ratio, to)})
}

// addLimit is a latency with a limit.
func (t *table) addLimit(name string, value, limit time.Duration) {
	t.add(figure{name: name, value: latency(value), target: "< " + latency(limit), ok: value < limit})
}

func (t *table) print(w io.Writer) {
	out := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(out, "FIGURE\tVALUE\tRATIO\tTARGET\t")
	missed := 0
	for _, f := range t.figures {
		verdict := ""
		if f.target != "" {
			verdict = "ok"
			if !f.ok {
				verdict = "MISSED"
				missed++
			}
		}
		fmt.Fprintln(out, strings.Join([]string{f.name, f.value, f.ratio, f.target, verdict}, "\t"))
	}
	_ = out.Flush() // standard output
	fmt.Fprintln(w, "\nValues are medians of the rounds; ratios are medians of the rounds' own ratios.")
	if missed > 0 {
		fmt.Fprintf(w, "%d target(s) MISSED.\n", missed)
	} else {
		fmt.Fprintln(w, "All targets met.")
	}
}

// perSecond writes a rate with separated thousands.
func perSecond(rate float64, unit string) string {
	text := strconv.FormatFloat(rate, 'f', 0, 64)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text + " " + unit + "/s"
}

func latency(d time.Duration) string {
	if d < 100*time.Microsecond {
		return d.Round(100 * time.Nanosecond).String()
	}
	return fmt.Sprintf("%.2f ms", d.Seconds()*1e3)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	switch {
	case n == 0:
		return 0
	case n%2 == 1:
		return sorted[n/2]
	default:
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
}

// quantile of sorted latencies.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
