"""What the process that forks workers imports last: from here on a Ctrl-C reaches it, and those it forks, again."""

import signal
import threading

if threading.current_thread() is threading.main_thread():
    _handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # drops the one that may wait
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, _handler)
