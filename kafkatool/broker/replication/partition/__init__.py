"""One partition as its replica here sees it: leader or follower, ISR, high watermark, reads."""
