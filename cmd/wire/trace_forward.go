package wire

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/adapters/httpclient"
)

// traceEffects shows what an event led to, each effect under its cause.
func traceEffects(ctx context.Context, client *httpclient.Client, o TraceOptions, id string) error {
	root, err := client.Event(ctx, o.LegalEntity, id)
	if err != nil {
		return err
	}
	tree, err := client.Descendants(ctx, root.Scope.LegalEntity, id)
	if err != nil {
		return err
	}
	if o.JSON {
		return printJSON(o.Out, map[string]any{"event": root, "descendants": tree.Events, "truncated": tree.Truncated, "left_out": shownLeftOut(tree.LeftOut)})
	}
	effects := map[string][]httpclient.Descendant{}
	for _, d := range tree.Events {
		effects[d.Parent] = append(effects[d.Parent], d)
	}
	printEffect(o.Out, 0, root)
	var under func(id string)
	under = func(id string) {
		for _, d := range effects[id] {
			printEffect(o.Out, d.Depth, d.Event)
			under(d.Event.ID)
		}
	}
	under(id)
	printLeftOut(o.Out, tree.LeftOut)
	return nil
}

func printEffect(out io.Writer, depth int, e httpclient.Event) {
	indent := ""
	if depth > 0 {
		indent = strings.Repeat("   ", depth-1) + "└─ "
	}
	fmt.Fprintln(out, strings.TrimRight(indent+e.Type+"  "+headline(e), " "))
	printWhere(out, strings.Repeat("   ", depth)+"     ", e)
}

func printWhere(out io.Writer, indent string, e httpclient.Event) {
	fmt.Fprintf(out, "%s%s  %s  %s/%s version %d, sequence %s, by %s %s\n", indent, e.RecordedAt.UTC().Format("2006-01-02 15:04:05.000Z"),
		e.Scope.LegalEntity, e.Stream.Type, e.Stream.ID, e.Stream.Version, e.Sequence, e.Actor.Type, e.Actor.ID)
}

// traceProcess shows everything under the event's correlation id with its times.
func traceProcess(ctx context.Context, client *httpclient.Client, o TraceOptions, id string) error {
	e, err := client.Event(ctx, o.LegalEntity, id)
	if err != nil {
		return err
	}
	p, err := client.Process(ctx, e.CorrelationID)
	if err != nil {
		return err
	}
	if o.JSON {
		p.LeftOut = shownLeftOut(p.LeftOut)
		return printJSON(o.Out, p)
	}
	for i, e := range p.Events {
		fmt.Fprintln(o.Out, strings.TrimRight(fmt.Sprintf("+%s  %s  %s", elapsed(p.Steps[i].SinceStartMS), e.Type, headline(e)), " "))
		printWhere(o.Out, "     ", e)
	}
	fmt.Fprintf(o.Out, "process %s: %d events in %s by %s\n", p.CorrelationID, len(p.Events), elapsed(p.DurationMS), strings.Join(p.Actors, ", "))
	if about := aboutLine(p.Entities); about != "" {
		fmt.Fprintln(o.Out, about)
	}
	printLeftOut(o.Out, p.LeftOut)
	return nil
}

// mostAbout bounds the entities that a terminal is shown of a process.
const mostAbout = 20

// aboutLine names what a process was about, each entity once, whatever its roles.
func aboutLine(entities []httpclient.Entity) string {
	var names []string
	seen := make(map[string]struct{}, len(entities)) // a process of many documents is about very many entities
	for _, e := range entities {
		name := e.Type + " " + e.ID
		if _, again := seen[name]; !again {
			seen[name] = struct{}{}
			names = append(names, name)
		}
	}
	switch n := len(names); {
	case n == 0:
		return ""
	case n > mostAbout:
		return fmt.Sprintf("about %s and %d more, which --json lists", strings.Join(names[:mostAbout], ", "), n-mostAbout)
	default:
		return "about " + strings.Join(names, ", ")
	}
}

func elapsed(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// leftOutTexts say why an answer stops before its end.
var leftOutTexts = map[string]string{
	"depth":        "it goes on for more steps than are followed",
	"count":        "there are more events than are shown at once",
	"size":         "there are more events, but together they are too large to be shown at once",
	"legal_entity": "it goes on in a legal entity that you may not see",
	"missing":      "the cause is in no log",
	"cycle":        "the events name each other as their cause",
}

func printLeftOut(out io.Writer, left []httpclient.LeftOut) {
	for _, l := range left {
		text, known := leftOutTexts[l.Reason]
		if !known {
			text = l.Reason
		}
		if l.EventID != "" {
			text = "at " + l.EventID + " " + text
		}
		fmt.Fprintln(out, "… "+text)
	}
}

// shownLeftOut is a list in JSON even when it is empty.
func shownLeftOut(left []httpclient.LeftOut) []httpclient.LeftOut {
	return append([]httpclient.LeftOut{}, left...)
}
