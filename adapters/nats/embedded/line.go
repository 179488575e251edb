package embedded

import (
	"fmt"
	"strings"
)

// line makes one line of what the server logs.
func line(format string, args []any) string {
	return "nats-server: " + strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
}
