package cli

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// progress is a line on a terminal that counts files by status. It is used by one
// goroutine at a time.
type progress struct {
	out     io.Writer
	files   int // 0: unknown
	done    int
	counted Totals
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func newProgress(w io.Writer, files int) *progress {
	p := &progress{out: w, files: files}
	p.draw()
	return p
}

// step counts a file and redraws the line. It is not throttled, as each file takes at
// least one request.
func (p *progress) step(f FileResult) {
	p.counted.tally(f.Status)
	p.done++
	p.draw()
}

func (p *progress) draw() {
	const clearLine = "\r\x1b[K"
	total := ""
	if p.files > 0 {
		total = fmt.Sprintf("/%d", p.files)
	}
	fmt.Fprintf(p.out, "%s%d%s  %s", clearLine, p.done, total, p.counted.summary())
}

// close ends the line.
func (p *progress) close() { fmt.Fprintln(p.out) }
