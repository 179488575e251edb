package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
)

// output is the destination and the form of what a command prints.
type output struct {
	out, err io.Writer
	json     bool // print the answer as JSON
	terminal bool // err is a terminal, where progress may redraw its line
	document json.RawMessage
}

func newOutput(cmd *cobra.Command, asJSON bool) output {
	return output{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), json: asJSON, terminal: isTerminal(os.Stderr)}
}

// keep returns the option with which a call stores the server's answer unchanged, for print.
func (o *output) keep() client.Option { return client.Document(&o.document) }

// print writes the stored answer of the server: as JSON with --json, else as the page that
// write builds.
func (o *output) print(write func(p *page)) error { return o.show(o.document, write) }

// show writes an answer: as JSON with --json, else as the page that write builds.
func (o *output) show(answer any, write func(p *page)) error {
	if o.json {
		return printJSON(o.out, answer)
	}
	return printPage(o.out, write)
}

// page is text for a person: lines (line), and tables with aligned columns (row).
type page struct {
	text  bytes.Buffer
	table *tabwriter.Writer // nil outside a table
}

func printPage(out io.Writer, write func(p *page)) error {
	var p page
	write(&p)
	p.end()
	_, err := out.Write(p.text.Bytes())
	return err
}

// line ends the open table, if any, and writes a line.
func (p *page) line(format string, args ...any) {
	p.end()
	fmt.Fprintf(&p.text, format+"\n", args...)
}

// row adds a row to the open table, or begins a table.
func (p *page) row(cells ...any) {
	if p.table == nil {
		p.table = tabwriter.NewWriter(&p.text, 0, 0, 2, ' ', 0)
	}
	for i, cell := range cells {
		if i > 0 {
			fmt.Fprint(p.table, "\t")
		}
		fmt.Fprint(p.table, cell)
	}
	fmt.Fprintln(p.table)
}

// next writes how to read the next page of a list, if there is one.
func (p *page) next(cursor string) {
	if cursor != "" {
		p.line("There are more; continue with --cursor %s", cursor)
	}
}

// end ends the open table, if any.
func (p *page) end() {
	if p.table != nil {
		_ = p.table.Flush() // into memory
		p.table = nil
	}
}

func printJSON(out io.Writer, answer any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(answer)
}

// Layouts of times in tables, all of them in UTC. Those of subscriptions and webhooks do not say so.
const (
	minuteLayout      = "2006-01-02 15:04Z"
	plainMinuteLayout = "2006-01-02 15:04"
	millisecondLayout = "2006-01-02 15:04:05.000Z"
)

// counted renders a number with its noun, whose plural must end in s.
func counted[N int | int64 | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// progress shows the progress of long work: on a terminal as a bar that it redraws, elsewhere as
// a line for each new title.
type progress struct {
	out      io.Writer
	terminal bool

	mu      sync.Mutex
	title   string
	started time.Time
	drawn   time.Time
}

func newProgress(out io.Writer, terminal bool) *progress {
	return &progress{out: out, terminal: terminal}
}

const (
	barWidth    = 24
	redrawAfter = 100 * time.Millisecond
	clearLine   = "\r\x1b[K" // moves to the beginning of the terminal's line and empties it
)

// report shows done of total. It may be called from several goroutines. Once done reaches
// total, output continues on the next line.
func (p *progress) report(title string, done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.terminal {
		if p.title != title {
			p.title = title
			fmt.Fprintf(p.out, "  %s\n", title)
		}
		return
	}
	now := time.Now()
	if p.started.IsZero() {
		p.started = now
	}
	if done < total && title == p.title && now.Sub(p.drawn) < redrawAfter {
		return
	}
	p.title, p.drawn = title, now
	full := barWidth
	if total > 0 {
		full = barWidth * min(done, total) / total
	}
	left, end := "", ""
	if done >= total {
		end = "\n"
	} else if done > 0 {
		left = (now.Sub(p.started) * time.Duration(total-done) / time.Duration(done)).Round(time.Second).String()
	}
	fmt.Fprintf(p.out, "%s%-18s [%s%s] %d / %d  %s%s", clearLine, title, strings.Repeat("=", full), strings.Repeat("-", barWidth-full), done, total, left, end)
}

// writeFileAtomically writes a file under another name and renames it when it is complete, so
// that path never holds a part of it.
func writeFileAtomically(path string, write func(io.Writer) error) (err error) {
	cannot := func(err error) error {
		return fault.New(fault.FailedPrecondition, "file.not_written", "the file cannot be written; check that its folder is there and has room").WithCause(err)
	}
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part")
	if err != nil {
		return cannot(err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = os.Remove(file.Name())
		}
	}()
	if err := write(file); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return cannot(err)
	}
	if err := file.Close(); err != nil {
		return cannot(err)
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return cannot(err)
	}
	return nil
}

// replaceFile writes a file atomically.
func replaceFile(path string, content []byte) error {
	return writeFileAtomically(path, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

func required(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		_ = cmd.MarkFlagRequired(name) // the flag exists
	}
}

// readAll reads a file; "-" is standard input.
func readAll(file string, in io.Reader) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(in)
	}
	return os.ReadFile(file)
}

var errTooLarge = errors.New("the file is too large")

// readLimited reads a file of at most limit bytes, or fails with errTooLarge. "-" is in, unless in
// is nil.
func readLimited(file string, in io.Reader, limit int64) ([]byte, error) {
	if file != "-" || in == nil {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	content, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = errTooLarge
	}
	return content, err
}
