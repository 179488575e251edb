package wire

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
)

// ProjectionRebuild is what `backbone projections rebuild` asks for.
type ProjectionRebuild struct {
	Name         string
	LegalEntity  string // "": all
	FromSnapshot string // version of a snapshot, or latest; "": from the beginning of the log
	Wait         bool   // until it has caught up
	Compare      bool   // then compare; it waits
	Switch       bool   // then switch; with Compare only if nothing differs
}

// RebuildProjection builds a version of a projection beside the one that is shown.
func RebuildProjection(ctx context.Context, o ClientOptions, r ProjectionRebuild) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	b, err := client.RebuildProjection(ctx, r.Name, httpclient.RebuildOrder{
		Switch: r.Switch && !r.Wait && !r.Compare, LegalEntity: r.LegalEntity, FromSnapshot: r.FromSnapshot,
	})
	if err != nil {
		return err
	}
	if !r.Wait && !r.Compare {
		return o.rebuild(b)
	}
	_, building := b.Of(r.LegalEntity)
	if building == nil {
		return o.rebuild(b) // somebody has ended it
	}
	version, command := building.Version, of(r.Name, r.LegalEntity)
	if b, err = o.awaitRebuild(ctx, client, r.Name, r.LegalEntity, version); err != nil {
		return err
	}
	if r.Compare {
		c, err := client.CompareProjection(ctx, r.Name, r.LegalEntity, 0)
		if err != nil {
			return err
		}
		if err := o.comparison(c); err != nil {
			return err
		}
		if r.Switch && (c.Rows != "0" || len(c.NotCompared) > 0) {
			return fault.New(fault.FailedPrecondition, "projection.versions_differ",
				"version %d differs from the one that is shown; switch to it with `backbone projections switch %s` if that is right, or cancel it", version, command)
		}
	}
	if r.Switch {
		return o.switchCaughtUp(ctx, client, r.Name, r.LegalEntity)
	}
	if !r.Compare {
		if err := o.rebuild(b); err != nil {
			return err
		}
	}
	return o.nextOfRebuild(command)
}

// of names a projection, and the legal entity that a command is about.
func of(name, legalEntity string) string {
	if legalEntity == "" {
		return name
	}
	return name + " --legal-entity " + legalEntity
}

// nextOfRebuild says what follows once a version has caught up.
func (o ClientOptions) nextOfRebuild(command string) error {
	if o.JSON {
		return nil
	}
	_, err := fmt.Fprintf(o.Out, "Show it to readers with `backbone projections switch %[1]s`, or end it with `backbone projections cancel %[1]s`.\n", command)
	return err
}

// switchTries is how often a switch is tried that is refused because more was written
// meanwhile than may be lacking.
const switchTries = 30

func (o ClientOptions) switchCaughtUp(ctx context.Context, client *httpclient.Client, name, legalEntity string) error {
	for try := 1; ; try++ {
		b, err := client.SwitchProjection(ctx, name, legalEntity, false, false)
		if err == nil {
			return o.rebuild(b)
		}
		if fault.CodeOf(err) != "projection.version_behind" || try == switchTries {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// lookEvery is how often the progress of a rebuild is looked at.
const lookEvery = 500 * time.Millisecond

func pause(ctx context.Context) error {
	t := time.NewTimer(lookEvery)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// awaitRebuild waits until a version has caught up, and draws a bar meanwhile on a
// terminal. Faults: projection.version_halted, projection.not_building when somebody
// ended it.
func (o ClientOptions) awaitRebuild(ctx context.Context, client *httpclient.Client, name, legalEntity string, version int) (httpclient.ProjectionRebuild, error) {
	drawn := false
	defer func() {
		if drawn {
			fmt.Fprintln(o.Err)
		}
	}()
	for {
		b, err := client.ProjectionRebuild(ctx, name)
		if err != nil {
			return b, err
		}
		_, building := b.Of(legalEntity)
		if building == nil || building.Version != version {
			if b.Active == version {
				return b, nil
			}
			return b, fault.New(fault.FailedPrecondition, "projection.not_building", "version %d of projection %s is not built any more; somebody has ended it", version, name)
		}
		if o.Terminal {
			fmt.Fprintf(o.Err, "\r%s\x1b[K", rebuildBar(*building))
			drawn = true
		}
		switch {
		case building.Faulted > 0 || building.Status == "faulted":
			return b, fault.New(fault.FailedPrecondition, "projection.version_halted", "version %d of projection %s stands still at an event; look at `backbone deadletters`, then fix or cancel it", version, name)
		case building.CaughtUp:
			return b, nil
		}
		if err := pause(ctx); err != nil {
			return b, err
		}
	}
}

// rebuildBar shows how far a rebuild has come on one line.
func rebuildBar(b httpclient.ProjectionBuilding) string {
	const width = 24
	done, _ := strconv.ParseUint(b.DoneEvents, 10, 64)
	total, _ := strconv.ParseUint(b.TotalEvents, 10, 64)
	full := width
	if total > 0 && done < total {
		full = int(float64(width) * float64(done) / float64(total))
	}
	line := fmt.Sprintf("[%s%s] %s/%s events", strings.Repeat("=", full), strings.Repeat(" ", width-full), b.DoneEvents, b.TotalEvents)
	if b.EventsPerSecond > 0 {
		line += fmt.Sprintf(", %.0f/s", b.EventsPerSecond)
	}
	if b.SecondsLeft > 0 {
		line += ", " + (time.Duration(b.SecondsLeft * float64(time.Second))).Round(time.Second).String() + " left"
	}
	return line
}

// ShowRebuild prints how the versions of a projection stand.
func ShowRebuild(ctx context.Context, o ClientOptions, name string) error {
	return o.onRebuild(func(c *httpclient.Client) (httpclient.ProjectionRebuild, error) {
		return c.ProjectionRebuild(ctx, name)
	})
}

// SwitchProjection shows readers the version that was built, or with back the one
// before.
func SwitchProjection(ctx context.Context, o ClientOptions, name, legalEntity string, back, force bool) error {
	return o.onRebuild(func(c *httpclient.Client) (httpclient.ProjectionRebuild, error) {
		return c.SwitchProjection(ctx, name, legalEntity, back, force)
	})
}

// RemoveProjectionVersion ends a rebuild, or with retained removes the version that is
// kept.
func RemoveProjectionVersion(ctx context.Context, o ClientOptions, name, legalEntity string, retained bool) error {
	return o.onRebuild(func(c *httpclient.Client) (httpclient.ProjectionRebuild, error) {
		return c.RemoveProjectionVersion(ctx, name, legalEntity, retained)
	})
}

func (o ClientOptions) onRebuild(step func(*httpclient.Client) (httpclient.ProjectionRebuild, error)) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	b, err := step(client)
	if err != nil {
		return err
	}
	return o.rebuild(b)
}

func (o ClientOptions) rebuild(b httpclient.ProjectionRebuild) error {
	if o.JSON {
		return o.json(b)
	}
	fmt.Fprintf(o.Out, "%s: readers are shown version %d\n", b.Name, b.Active)
	if b.Retained != 0 {
		fmt.Fprintf(o.Out, "Version %d is kept; go back to it with `backbone projections rollback %s`.\n", b.Retained, b.Name)
	}
	for _, version := range b.Dropping {
		fmt.Fprintf(o.Out, "Version %d is being removed.\n", version)
	}
	o.building("", b.Building)
	for _, part := range b.LegalEntities {
		if part.Retained != 0 {
			fmt.Fprintf(o.Out, "%s: version %d keeps what was shown there before; go back to it with `backbone projections rollback %s`.\n",
				part.LegalEntity, part.Retained, of(b.Name, part.LegalEntity))
		}
		o.building(part.LegalEntity+": ", part.Building)
	}
	return o.snapshots(b.Snapshots)
}

func (o ClientOptions) building(prefix string, b *httpclient.ProjectionBuilding) {
	if b == nil {
		return
	}
	state := b.Status
	switch {
	case b.CaughtUp:
		state = "caught up"
	case b.FromSnapshot != 0 && b.Status == "created":
		state = fmt.Sprintf("copying snapshot %d", b.FromSnapshot)
	}
	begin := "Version"
	if prefix != "" {
		begin = prefix + "version"
	}
	fmt.Fprintf(o.Out, "%s %d is being built (%s): %s\n", begin, b.Version, state, rebuildBar(*b))
}

// CompareProjection prints in what two versions of a projection differ.
func CompareProjection(ctx context.Context, o ClientOptions, name, legalEntity string, examples int) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	c, err := client.CompareProjection(ctx, name, legalEntity, examples)
	if err != nil {
		return err
	}
	return o.comparison(c)
}

func (o ClientOptions) comparison(c httpclient.ProjectionComparison) error {
	if o.JSON {
		return o.json(c)
	}
	differ := c.Rows + " rows differ"
	switch {
	case len(c.LegalEntities) == 0:
		differ = "nothing was compared"
	case c.Rows == "1":
		differ = "1 row differs"
	}
	fmt.Fprintf(o.Out, "%s, version %d (left, shown) and version %d (right): %s\n", c.Name, c.Left, c.Right, differ)
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	if len(c.LegalEntities) > 0 {
		fmt.Fprintln(table, "LEGAL ENTITY\tSEQUENCE\tTABLE\tLEFT\tRIGHT\tONLY LEFT\tONLY RIGHT\tCHANGED")
	}
	var examples []string
	for _, e := range c.LegalEntities {
		for _, t := range e.Tables {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.LegalEntity, e.Sequence, t.Table, t.LeftRows, t.RightRows, t.OnlyLeft, t.OnlyRight, t.Changed)
			for _, x := range t.Examples {
				examples = append(examples, fmt.Sprintf("%s\t%s\t%s\t%s\t%s", e.LegalEntity, t.Table, x.Key, x.In, cmp.Or(strings.Join(x.Columns, ", "), "-")))
			}
		}
	}
	if len(examples) > 0 {
		fmt.Fprintln(table, "\nLEGAL ENTITY\tTABLE\tROW\tIN\tCOLUMNS")
		for _, line := range examples {
			fmt.Fprintln(table, line)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(c.NotCompared) > 0 {
		fmt.Fprintf(o.Out, "Not compared, since the versions could not be brought to the same event: %s\n", strings.Join(c.NotCompared, ", "))
	}
	for _, alone := range []struct {
		version int
		codes   []string
	}{{c.Left, c.OnlyLeft}, {c.Right, c.OnlyRight}} {
		if len(alone.codes) > 0 {
			fmt.Fprintf(o.Out, "Not compared, since only version %d reads them: %s\n", alone.version, strings.Join(alone.codes, ", "))
		}
	}
	return nil
}
