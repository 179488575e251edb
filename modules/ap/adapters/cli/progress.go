package cli

import (
	"io"
	"os"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
)

// progress is a bar that counts files by status.
type progress struct {
	container *mpb.Progress
	bar       *mpb.Bar
	counted   Totals
	summaries chan string // the latest summary, for the goroutine that draws
}

// terminal reports whether a stream is a terminal.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func newProgress(w io.Writer, files int, options ...mpb.ContainerOption) *progress {
	p := &progress{summaries: make(chan string, 1)}
	p.container = mpb.New(append([]mpb.ContainerOption{mpb.WithOutput(w)}, options...)...)
	summary := ""
	p.bar = p.container.AddBar(int64(files),
		mpb.BarWidth(24),
		mpb.PrependDecorators(decor.CountersNoUnit("%d/%d ")),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string {
			select {
			case summary = <-p.summaries:
			default:
			}
			return " " + summary
		})),
	)
	return p
}

// step counts a file. It is called by one goroutine at a time.
func (p *progress) step(f FileResult) {
	p.counted.tally(f.Status)
	select {
	case <-p.summaries:
	default:
	}
	p.summaries <- p.counted.summary()
	p.bar.Increment()
}

// close draws the last state and leaves the line.
func (p *progress) close() {
	p.bar.Abort(false) // without effect on a bar that is complete
	p.container.Wait()
}
