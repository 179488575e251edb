package opa

// HoldTurns takes the turns of all processors, and gives them back when it is told to.
func (e *Engine) HoldTurns() (release func()) {
	for range cap(e.turns) {
		e.turns <- struct{}{}
	}
	return func() {
		for range cap(e.turns) {
			<-e.turns
		}
	}
}
