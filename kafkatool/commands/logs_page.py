def page(data):
    return ""
