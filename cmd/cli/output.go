package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"github.com/erpbackbone/backbone/domain/fault"
)

func (o ClientOptions) json(v any) error {
	encoder := json.NewEncoder(o.Out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

const minute = "2006-01-02 15:04Z"

// counted words a number of things whose plural ends in s.
func counted[N int | int64 | uint64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// progress shows long work: a bar on a terminal, a line for each new title
// elsewhere.
type progress struct {
	out      io.Writer
	terminal bool

	mu    sync.Mutex
	bars  *mpb.Progress
	bar   *mpb.Bar
	label atomic.Pointer[string] // read by the bar's own goroutine
}

func newProgress(out io.Writer, terminal bool) *progress {
	return &progress{out: out, terminal: terminal}
}

// report tells where the work is. It may be called from several goroutines.
func (p *progress) report(title string, done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.terminal {
		if have := p.label.Load(); have == nil || *have != title {
			p.label.Store(&title)
			fmt.Fprintf(p.out, "  %s\n", title)
		}
		return
	}
	p.label.Store(&title)
	if p.bars == nil {
		p.bars = mpb.New(mpb.WithOutput(p.out), mpb.WithWidth(48))
		p.bar = p.bars.AddBar(int64(total),
			mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return *p.label.Load() }, decor.WC{W: 18, C: decor.DindentRight})),
			mpb.AppendDecorators(decor.CountersNoUnit("%d / %d"), decor.Name("  "), decor.AverageETA(decor.ET_STYLE_GO)))
	}
	p.bar.SetCurrent(int64(done))
	if done >= total {
		p.bars.Wait()
	}
}

func printJSON(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// writeWhole writes a file under another name and renames it when it is complete.
func writeWhole(path string, write func(io.Writer) error) (err error) {
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

func required(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		_ = cmd.MarkFlagRequired(name) // the flag exists
	}
}
