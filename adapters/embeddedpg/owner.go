package embeddedpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"

	"github.com/erpbackbone/backbone/domain/fault"
)

// owner is the system user that PostgreSQL runs as when backbone runs as root,
// which PostgreSQL itself refuses to. A nil owner is the user of this process.
type owner struct {
	uid, gid int
}

// chooseOwner keeps the user who already owns the cluster's home, and takes
// postgres or nobody for a new one.
func chooseOwner(home string) (*owner, error) {
	info, err := os.Stat(home)
	if errors.Is(err, os.ErrNotExist) {
		return newOwner()
	}
	if err != nil {
		return nil, directoryError(home, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("embeddedpg: the owner of %s is not known on this system", home)
	}
	me, uid := os.Geteuid(), int(stat.Uid)
	switch {
	case me == 0 && uid == 0: // made by a start that was killed before it changed the owner
		return newOwner()
	case me == 0:
		return &owner{uid: uid, gid: int(stat.Gid)}, nil
	case uid == me:
		return nil, nil
	}
	return nil, fault.New(fault.FailedPrecondition, "dev.data_directory_owner",
		"%s belongs to user id %d. Start as root or as that user, or choose another data directory.", home, uid)
}

// newOwner is the user for a cluster that does not exist yet.
func newOwner() (*owner, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(found.Uid)
		gid, gidErr := strconv.Atoi(found.Gid)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return &owner{uid: uid, gid: gid}, nil
		}
	}
	return nil, fault.New(fault.FailedPrecondition, "dev.postgres_user_missing",
		"PostgreSQL does not run as root and this system has neither a user postgres nor nobody. Create one, or start as another user.")
}

// own gives a file to the owner.
func (o *owner) own(path string) error {
	if o == nil {
		return nil
	}
	return os.Lchown(path, o.uid, o.gid)
}

// command prepares a PostgreSQL program that works on dir as the owner, in a
// process group of its own so that Ctrl-C on the terminal reaches only backbone.
// The arguments get the name by which the program reaches dir. After Start or Run
// the caller calls done.
func (o *owner) command(program, dir string, arguments func(dir string) []string) (cmd *exec.Cmd, done func(), err error) {
	if o == nil {
		cmd, done = exec.Command(program, arguments(dir)...), func() {}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	} else {
		// The owner may have no access to the path of dir. Through an inherited descriptor
		// it needs rights on dir alone.
		open, err := os.Open(dir)
		if err != nil {
			return nil, nil, err
		}
		cmd, done = exec.Command(program, arguments("/proc/self/fd/3")...), func() { _ = open.Close() }
		cmd.ExtraFiles = []*os.File{open} // the first of these is descriptor 3
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Setpgid:    true,
			Credential: &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.gid)},
		}
	}
	// Every user may enter /: PostgreSQL 15 leaves and re-enters its first working directory
	// while it searches for its own files.
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C", "TZ=UTC"}
	return cmd, done, nil
}
