package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// findingsShown is the most findings of one file that the table has; JSON has them all.
const findingsShown = 10

// WriteTable writes the report for a person: one row per file with a row for each
// further finding below it, then the totals.
func (r *Report) WriteTable(w io.Writer) error {
	var out bytes.Buffer
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FILE\tSTATUS\tKIND\tDOCUMENT\tNUMBER\tTOTAL\tREASON")
	for i := range r.Files {
		f := &r.Files[i]
		reasons := f.reasons()
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable(f.place()), f.Status, noun(f.Kind),
			dash(f.DocumentID), dash(f.Number), dash(strings.TrimSpace(f.Total+" "+f.Currency)), printable(reasons[0]))
		for _, reason := range reasons[1:] {
			fmt.Fprintf(table, "\t\t\t\t\t\t%s\n", printable(reason))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	out.WriteByte('\n')
	r.Totals.write(&out, len(r.Files))
	for line := range bytes.Lines(out.Bytes()) {
		// tabwriter pads the last cells of a row too.
		if _, err := fmt.Fprintf(w, "%s\n", bytes.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// place is the file, and of a CSV file the line of the document's first row.
func (f *FileResult) place() string {
	if f.Row == 0 {
		return f.File
	}
	return f.File + ":" + strconv.Itoa(f.Row)
}

// reasons explains the file's status in at least one line, "-" if there is no more to say.
func (f *FileResult) reasons() []string {
	var out []string
	switch f.Status {
	case StatusDuplicate:
		text := f.Code
		if f.HolderState != "" {
			text += ": the document is " + f.HolderState
		}
		if slices.Contains(f.Differs, memberSource) {
			text += "; another file, with the same figures"
		}
		out = append(out, text)
	case StatusReinstatable:
		out = append(out, f.Code+": "+f.Detail)
	case StatusRefused:
		for _, v := range f.Violations {
			out = append(out, finding(v))
		}
		if f.Holder != nil && f.Holder.DocumentID != "" {
			out = append(out, "the number is taken by "+f.Holder.DocumentID+f.holderText())
		}
	case StatusPending, StatusFailed:
		reason := f.Code + ": " + f.Detail
		if f.IntentID != "" {
			reason += "; intent " + f.IntentID
		}
		out = append(out, reason)
	}
	if len(f.Holds) > 0 {
		kinds := make([]string, len(f.Holds))
		for i, h := range f.Holds {
			kinds[i] = cmp.Or(h.Kind, "unknown")
		}
		out = append(out, "held: "+strings.Join(kinds, ", "))
	}
	for _, v := range f.Warnings {
		out = append(out, "warning: "+finding(v))
	}
	if more := len(out) - findingsShown; more > 0 {
		out = append(out[:findingsShown], fmt.Sprintf("and %d more; --json lists all", more))
	}
	if len(out) == 0 {
		return []string{"-"}
	}
	return out
}

// holderText says what became of the document that holds the number, and in what it differs.
func (f *FileResult) holderText() string {
	var parts []string
	if f.HolderState != "" {
		parts = append(parts, "is "+f.HolderState)
	}
	if len(f.Differs) > 0 {
		parts = append(parts, "differs in "+strings.Join(f.Differs, ", "))
	}
	if len(parts) == 0 {
		return ""
	}
	return ", which " + strings.Join(parts, " and ")
}

// finding writes a finding with its figures and position on one line.
func finding(v fault.Violation) string {
	var b strings.Builder
	b.WriteString(ruleOrCode(v))
	if v.Expected != "" || v.Got != "" {
		separator := " "
		for _, figure := range []struct{ label, value string }{{"expected", v.Expected}, {"got", v.Got}, {"difference", v.Difference}} {
			if figure.value != "" {
				b.WriteString(separator + figure.label + " " + figure.value)
				separator = ", "
			}
		}
		if v.Currency != "" {
			b.WriteString(" " + v.Currency)
		}
	}
	switch {
	case v.Element != "":
		fmt.Fprintf(&b, " at %s", v.Element)
	case v.Field != "":
		fmt.Fprintf(&b, " at %s", v.Field)
	}
	if v.Line > 0 {
		fmt.Fprintf(&b, ", line %d", v.Line)
	}
	if v.Detail != "" {
		b.WriteString(": " + v.Detail)
	}
	return b.String()
}

func (t *Totals) write(w io.Writer, total int) {
	fmt.Fprintf(w, "%s: %s\n", count(total, "file"), t.summary())
	if t.VendorsRegistered > 0 {
		fmt.Fprintf(w, "%s registered\n", count(t.VendorsRegistered, "vendor"))
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if len(t.ByCurrency) > 0 {
		fmt.Fprintln(table, "\nCURRENCY\tACCEPTED\tDUPLICATE\tREFUSED\tINVOICES\tCREDIT MEMOS\t")
		for _, currency := range slices.Sorted(maps.Keys(t.ByCurrency)) {
			c := t.ByCurrency[currency]
			fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\t%s\t\n", currency, c.Accepted, c.Duplicate, c.Refused, c.InvoiceAmount, c.CreditMemoAmount)
		}
	}
	_ = table.Flush() // into memory
	counts := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, group := range []struct {
		title  string
		counts map[string]int
	}{{"REFUSED BY", t.ByRule}, {"HELD BY", t.ByHold}, {"WARNED BY", t.ByWarning}} {
		if len(group.counts) == 0 {
			continue
		}
		fmt.Fprintf(counts, "\n%s\tFILES\n", group.title)
		for _, key := range slices.Sorted(maps.Keys(group.counts)) {
			fmt.Fprintf(counts, "%s\t%d\n", cmp.Or(printable(key), "unknown"), group.counts[key])
		}
	}
	_ = counts.Flush() // into memory
}

// summary writes the number of files by status. Reinstatable, pending and failed are left out
// when they are 0.
func (t *Totals) summary() string {
	text := fmt.Sprintf("%d accepted, %s, %d refused", t.Accepted, count(t.Duplicate, "duplicate"), t.Refused)
	if t.Reinstatable > 0 {
		text += fmt.Sprintf(", %d to reinstate", t.Reinstatable)
	}
	if t.Pending > 0 {
		text += fmt.Sprintf(", %d pending", t.Pending)
	}
	if t.Failed > 0 {
		text += fmt.Sprintf(", %d failed", t.Failed)
	}
	return text
}

func noun(k contract.Kind) string {
	switch k {
	case "":
		return "-"
	case contract.CreditMemo:
		return "credit memo"
	default:
		return string(k)
	}
}

func dash(s string) string { return cmp.Or(printable(s), "-") }

// printable replaces control characters, which a terminal could take for a command and a
// table for a separator: names and numbers come from the senders of the files.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// text writes a number of a fault, "" for none.
func text(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// count writes a number with its noun.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
