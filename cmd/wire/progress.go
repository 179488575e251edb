package wire

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

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
