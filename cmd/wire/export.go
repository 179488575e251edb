package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
)

// EventExportOptions are the flags of `backbone export`.
type EventExportOptions struct {
	Server      string
	Token       string
	Parameters  url.Values // of GET /api/events/export
	AfterCursor string
	File        string // "-": Out
	Out         io.Writer
	Err         io.Writer // progress and the summary
	Terminal    bool      // Err is a terminal
}

// ExportEvents writes the events of a query to a file, whole pages only, so that an
// export that broke off goes on behind its last one.
func ExportEvents(ctx context.Context, o EventExportOptions) (err error) {
	if o.Token == "" {
		return fault.New(fault.Unauthenticated, "export.token_missing", "no access token; set BACKBONE_TOKEN or --token")
	}
	client, err := httpclient.New(httpclient.Config{Server: o.Server, Token: o.Token})
	if err != nil {
		return err
	}
	if o.AfterCursor != "" {
		o.Parameters.Set("cursor", o.AfterCursor)
	}
	out := exportFile{options: &o}
	show := newCounter(o.Err, o.Terminal)
	started := time.Now()
	events, cursor := 0, o.AfterCursor
	err = client.Export(ctx, o.Parameters, func(p httpclient.ExportedPage) error {
		if err := out.write(p.Lines); err != nil {
			return err
		}
		events, cursor = events+p.Events, p.NextCursor
		show.add(p.Events)
		return nil
	})
	show.stop(err == nil)
	err = errors.Join(err, out.close())
	seconds := max(time.Since(started).Seconds(), 0.001)
	if err == nil {
		fmt.Fprintf(o.Err, "%d events in %.1f s (%.0f events/s)\n", events, seconds, float64(events)/seconds)
		return nil
	}
	if events > 0 {
		fmt.Fprintf(o.Err, "The export broke off after %d events. Go on with the same command and --after-cursor %s\n", events, cursor)
	}
	return err
}

// exportFile is where the lines go. A file is made with the first page, so that a
// query that is refused leaves none; one that is there is only added to when an
// export goes on.
type exportFile struct {
	options *EventExportOptions
	file    *os.File
	size    int64 // in whole pages
}

func (f *exportFile) write(lines []byte) error {
	if f.options.File == "-" {
		_, err := f.options.Out.Write(lines)
		return err
	}
	if f.file == nil {
		flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND
		if f.options.AfterCursor == "" {
			flags |= os.O_EXCL
		}
		file, err := os.OpenFile(f.options.File, flags, 0o600)
		if errors.Is(err, os.ErrExist) {
			return fault.New(fault.Conflict, "export.file_exists", "the file is there already; name another one, remove it, or go on with --after-cursor")
		}
		if err != nil {
			return err
		}
		f.file = file
		about, err := file.Stat()
		if err != nil {
			return err
		}
		f.size = about.Size()
	}
	n, err := f.file.Write(lines)
	if err != nil { // a full disk leaves no half page; a pipe cannot be cut
		return errors.Join(err, f.file.Truncate(f.size))
	}
	f.size += int64(n)
	return nil
}

func (f *exportFile) close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

// counter shows on a terminal how many there are and how fast they come; how many
// will come nobody knows.
type counter struct {
	bars *mpb.Progress
	bar  *mpb.Bar
}

func newCounter(out io.Writer, terminal bool) *counter {
	if !terminal {
		return &counter{}
	}
	c := &counter{bars: mpb.New(mpb.WithOutput(out), mpb.WithWidth(48))}
	c.bar = c.bars.New(0, mpb.SpinnerStyle(),
		mpb.PrependDecorators(decor.CurrentNoUnit("%d events  ")), mpb.AppendDecorators(decor.AverageSpeed(0, "%.0f events/s")))
	return c
}

func (c *counter) add(n int) {
	if c.bar != nil {
		c.bar.IncrBy(n)
	}
}

// stop ends the display; complete says that nothing is missing.
func (c *counter) stop(complete bool) {
	if c.bar == nil {
		return
	}
	if complete {
		c.bar.SetTotal(-1, true)
	} else {
		c.bar.Abort(false)
	}
	c.bars.Wait()
}
