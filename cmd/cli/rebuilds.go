package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
)

// rebuildCommands are those of `backbone projections` that are about versions.
func rebuildCommands() []*cobra.Command {
	return []*cobra.Command{
		rebuildCommand(), snapshotCommand(), versionsCommand(), compareCommand(),
		switchCommand("switch", false, "Show readers the version that was built", "The version before is kept and follows the log, to go back to, until it is dropped."),
		switchCommand("rollback", true, "Show readers the version before again", "The version that was shown is kept in turn."),
		removeCommand("cancel", false, "End a rebuild and remove what it wrote"),
		removeCommand("drop", true, "Remove the version that is kept to go back to, or a snapshot"),
	}
}

func rebuildCommand() *cobra.Command {
	var r ProjectionRebuild
	var rows ProjectionRows
	cmd := &cobra.Command{
		Use: "rebuild PROJECTION", Short: "Build a projection anew beside the version that is shown", Args: cobra.ExactArgs(1),
		Long: "Readers are shown the version that there is until they are switched to the new one. With --switch\n" +
			"that is done once it has caught up; with --compare --switch only if no row differs. Ending this\n" +
			"command does not end the rebuild; `backbone projections cancel` does.\n\n" +
			"With --legal-entity only the rows of that one are built anew; switching with the same flag shows them\n" +
			"there and keeps those before. With --from-snapshot the new version begins with a copy of a snapshot\n" +
			"and reads only what came after it.\n\n" +
			"With --entity or --subject only the rows of that entity, or of the entities that events about that\n" +
			"person belong to, are folded anew from the log, in place and at once, in every version.",
		Example: "  backbone projections rebuild gl.ledger --wait --compare\n  backbone projections rebuild gl.ledger --compare --switch\n  backbone projections rebuild ap.vendors --switch\n" +
			"  backbone projections rebuild gl.ledger --legal-entity USMF --compare\n  backbone projections rebuild gl.ledger --from-snapshot latest --wait\n" +
			"  backbone projections rebuild ap.vendors --entity ap.vendor/V-1042 --legal-entity USMF --dry-run\n  backbone projections rebuild ap.vendors --subject contact:C-17",
	}
	options := clientFlags(cmd)
	cmd.Flags().BoolVar(&r.Wait, "wait", false, "wait until it has caught up and show the progress")
	cmd.Flags().BoolVar(&r.Compare, "compare", false, "wait, then compare it row by row with the version that is shown")
	cmd.Flags().BoolVar(&r.Switch, "switch", false, "switch readers to it once it has caught up")
	cmd.Flags().StringVar(&rows.Entity, "entity", "", "only the rows of this entity: type/id of its stream; with --legal-entity")
	cmd.Flags().StringVar(&rows.Subject, "subject", "", "only the rows of the entities that events about this person belong to: type:id")
	cmd.Flags().StringVar(&rows.LegalEntity, "legal-entity", "", "only this one; of the entity with --entity (default: all, with --subject wherever you may)")
	cmd.Flags().StringVar(&r.FromSnapshot, "from-snapshot", "", "begin with a copy of this snapshot: its version, or latest")
	cmd.Flags().IntVar(&rows.Version, "version", 0, "with --entity or --subject: only in this version (default: in all)")
	cmd.Flags().BoolVar(&rows.DryRun, "dry-run", false, "with --entity or --subject: tell what would change and change nothing")
	cmd.MarkFlagsMutuallyExclusive("entity", "subject")
	for _, whole := range []string{"wait", "compare", "switch", "from-snapshot"} {
		cmd.MarkFlagsMutuallyExclusive("entity", whole)
		cmd.MarkFlagsMutuallyExclusive("subject", whole)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.Name = args[0]
		if rows.Chosen() {
			return RebuildProjectionRows(cmd.Context(), options(), r.Name, rows)
		}
		r.LegalEntity, rows.LegalEntity = rows.LegalEntity, ""
		if rows != (ProjectionRows{}) {
			return fault.New(fault.Invalid, "projection.target_invalid", "--version and --dry-run go with --entity or --subject; name one")
		}
		return RebuildProjection(cmd.Context(), options(), r)
	}
	return cmd
}

func snapshotCommand() *cobra.Command {
	var legalEntity string
	var wait bool
	cmd := &cobra.Command{
		Use: "snapshot PROJECTION", Short: "Take a snapshot that a rebuild may begin with", Args: cobra.ExactArgs(1),
		Long: "The rows that readers are shown are copied as they are, each legal entity at one event, while readers\n" +
			"and the projection go on. The newest three are kept. What was redacted or erased since is never copied\n" +
			"back, and no snapshot of another release's handler is.",
		Example: "  backbone projections snapshot gl.ledger --wait\n  backbone projections rebuild gl.ledger --from-snapshot latest --compare",
	}
	options := clientFlags(cmd)
	cmd.Flags().StringVar(&legalEntity, "legal-entity", "", "only this one (default: all)")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it is complete")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return SnapshotProjection(cmd.Context(), options(), args[0], legalEntity, wait)
	}
	return cmd
}

func versionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "versions PROJECTION", Short: "Show the versions of a projection and how far a rebuild has come", Args: cobra.ExactArgs(1),
		Example: "  backbone projections versions gl.ledger\n  backbone projections versions gl.ledger --json",
	}
	options := clientFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return ShowRebuild(cmd.Context(), options(), args[0])
	}
	return cmd
}

func compareCommand() *cobra.Command {
	var examples int
	var legalEntity string
	cmd := &cobra.Command{
		Use: "compare PROJECTION", Short: "Compare the version that is shown with the one that is built", Args: cobra.ExactArgs(1),
		Long:    "Each legal entity is compared at one event. Rows are named by their key; no values are shown.",
		Example: "  backbone projections compare gl.ledger\n  backbone projections compare gl.ledger --examples 100 --json",
	}
	options := clientFlags(cmd)
	cmd.Flags().StringVar(&legalEntity, "legal-entity", "", "compare what was built for this one alone")
	cmd.Flags().IntVar(&examples, "examples", 10, "name so many rows of each table and legal entity that differ")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return CompareProjection(cmd.Context(), options(), args[0], legalEntity, examples)
	}
	return cmd
}

func switchCommand(name string, back bool, short, long string) *cobra.Command {
	var force bool
	var legalEntity string
	cmd := &cobra.Command{
		Use: name + " PROJECTION", Short: short, Long: long, Args: cobra.ExactArgs(1),
		Example: "  backbone projections " + name + " gl.ledger\n  backbone projections " + name + " gl.ledger --legal-entity USMF",
	}
	options := clientFlags(cmd)
	cmd.Flags().StringVar(&legalEntity, "legal-entity", "", "only this one, of which a version of its own was built")
	cmd.Flags().BoolVar(&force, "force", false, "whatever that version lacks; readers may go back in time")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return SwitchProjection(cmd.Context(), options(), args[0], legalEntity, back, force)
	}
	return cmd
}

func removeCommand(name string, retained bool, short string) *cobra.Command {
	var legalEntity string
	snapshot := 0
	cmd := &cobra.Command{
		Use: name + " PROJECTION", Short: short, Args: cobra.ExactArgs(1), Long: "Its rows are removed little by little.",
		Example: "  backbone projections " + name + " gl.ledger",
	}
	options := clientFlags(cmd)
	cmd.Flags().StringVar(&legalEntity, "legal-entity", "", "the version, or the snapshot, of this one alone")
	if retained {
		cmd.Example += "\n  backbone projections " + name + " gl.ledger --snapshot 4"
		cmd.Flags().IntVar(&snapshot, "snapshot", 0, "remove this snapshot instead")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if snapshot != 0 {
			return DropProjectionSnapshot(cmd.Context(), options(), args[0], legalEntity, snapshot)
		}
		return RemoveProjectionVersion(cmd.Context(), options(), args[0], legalEntity, retained)
	}
	return cmd
}

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

// ProjectionRows says which rows `backbone projections rebuild` folds anew.
type ProjectionRows struct {
	Entity      string // type/id of its stream
	Subject     string // type:id of a person
	LegalEntity string
	Version     int // 0: all
	DryRun      bool
}

// Chosen tells whether rows are meant and not the projection as a whole.
func (r ProjectionRows) Chosen() bool { return r.Entity != "" || r.Subject != "" }

// RebuildProjectionRows folds the rows of an entity or a person anew and prints how many
// were not as the log makes them.
func RebuildProjectionRows(ctx context.Context, o ClientOptions, name string, r ProjectionRows) error {
	command := httpclient.ProjectionRowsCommand{LegalEntity: r.LegalEntity, Subject: r.Subject, Version: r.Version, DryRun: r.DryRun}
	if r.Entity != "" {
		streamType, id, found := strings.Cut(r.Entity, "/")
		if !found || streamType == "" || id == "" {
			return fault.New(fault.Invalid, "projection.target_invalid", "an entity is written as the type and id of its stream, such as ap.vendor/V-1042; correct --entity")
		}
		command.Entity = &httpclient.ProjectionEntity{Type: streamType, ID: id}
	}
	client, err := o.connect()
	if err != nil {
		return err
	}
	rebuilt, err := client.RebuildProjectionRows(ctx, name, command)
	if err != nil {
		return err
	}
	if o.JSON {
		return o.json(rebuilt)
	}
	return o.rowsRebuilt(rebuilt)
}

func (o ClientOptions) rowsRebuilt(r httpclient.ProjectionRowsRebuilt) error {
	if len(r.Rebuilt) == 0 {
		fmt.Fprintf(o.Out, "%s: no event of the projection is about this; nothing was changed\n", r.Name)
	} else {
		fmt.Fprintf(o.Out, "%s: %s\n", r.Name, foundRows(r.Rows, r.DryRun))
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	if len(r.Rebuilt) > 0 {
		fmt.Fprintln(table, "LEGAL ENTITY\tVERSION\tSEQUENCE\tENTITIES\tEVENTS\tTABLE\tROWS\tREMOVED\tADDED\tCHANGED")
	}
	passedOver := false
	for _, one := range r.Rebuilt {
		passedOver = passedOver || one.PassedOver != "0"
		for _, t := range one.Tables {
			fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", one.LegalEntity, one.Version, one.Sequence, one.Entities, one.Events, t.Table, t.RightRows, t.OnlyLeft, t.OnlyRight, t.Changed)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if passedOver {
		fmt.Fprintln(o.Out, "Some events were left out again, which a version had gone on without; look at `backbone deadletters`.")
	}
	for _, version := range r.LeftOut {
		fmt.Fprintf(o.Out, "Version %d was left as it is: another release built it.\n", version)
	}
	return nil
}

// foundRows says what became of rows that were not as the log makes them.
func foundRows(rows string, dryRun bool) string {
	switch {
	case rows == "0":
		return "all rows are as the log makes them"
	case dryRun && rows == "1":
		return "1 row is not as the log makes it; nothing was changed"
	case dryRun:
		return rows + " rows are not as the log makes them; nothing was changed"
	case rows == "1":
		return "1 row was not as the log makes it and is now"
	default:
		return rows + " rows were not as the log makes them and are now"
	}
}

// SnapshotProjection takes a snapshot of what readers are shown, in one legal entity or,
// for "", in all. With wait it ends once the snapshot is complete.
func SnapshotProjection(ctx context.Context, o ClientOptions, name, legalEntity string, wait bool) error {
	client, err := o.connect()
	if err != nil {
		return err
	}
	b, err := client.SnapshotProjection(ctx, name, legalEntity)
	if err != nil {
		return err
	}
	version := 0
	for _, s := range b.Snapshots {
		if s.LegalEntity == legalEntity {
			version = max(version, s.Version)
		}
	}
	for wait {
		taken, there := snapshotOf(b, version)
		if !there {
			return fault.New(fault.FailedPrecondition, "projection.snapshot_not_found", "snapshot %d of projection %s is not there any more; take another one", version, name)
		}
		if taken.Complete {
			break
		}
		if err := pause(ctx); err != nil {
			return err
		}
		if b, err = client.ProjectionRebuild(ctx, name); err != nil {
			return err
		}
	}
	return o.rebuild(b)
}

func snapshotOf(b httpclient.ProjectionRebuild, version int) (httpclient.ProjectionSnapshot, bool) {
	for _, s := range b.Snapshots {
		if s.Version == version {
			return s, true
		}
	}
	return httpclient.ProjectionSnapshot{}, false
}

// DropProjectionSnapshot removes a snapshot. legalEntity is the one that it is about, ""
// for one of all.
func DropProjectionSnapshot(ctx context.Context, o ClientOptions, name, legalEntity string, version int) error {
	return o.onRebuild(func(c *httpclient.Client) (httpclient.ProjectionRebuild, error) {
		return c.DropProjectionSnapshot(ctx, name, legalEntity, version)
	})
}

// snapshots prints the table of snapshots, if there are any.
func (o ClientOptions) snapshots(all []httpclient.ProjectionSnapshot) error {
	if len(all) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(o.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nSNAPSHOT\tLEGAL ENTITY\tSEQUENCE\tROWS\tTAKEN\tSTATE")
	for _, s := range all {
		if len(s.LegalEntities) == 0 {
			fmt.Fprintf(table, "%d\t%s\t-\t0\t-\t%s\n", s.Version, cmp.Or(s.LegalEntity, "-"), snapshotState(s, httpclient.ProjectionSnapshotPart{}))
		}
		for _, part := range s.LegalEntities {
			taken := "-"
			if part.TakenAt != nil {
				taken = part.TakenAt.UTC().Format("2006-01-02 15:04Z")
			}
			fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\n", s.Version, part.LegalEntity, part.Sequence, part.RowCount, taken, snapshotState(s, part))
		}
	}
	return table.Flush()
}

func snapshotState(s httpclient.ProjectionSnapshot, part httpclient.ProjectionSnapshotPart) string {
	switch {
	case !s.Complete:
		return "being copied"
	case s.Outdated:
		return "of another handler"
	case !part.Usable:
		return "redacted since"
	default:
		return "usable"
	}
}
